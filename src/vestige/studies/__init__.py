"""Studies: grids of subjects, planned as tasks and run by as many processes as the machine has use for."""
