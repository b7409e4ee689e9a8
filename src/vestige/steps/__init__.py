"""Steps: from an identity to an artefact. Each does nothing when its artefact is there, and resumes when half done."""
