"""Graphs, contracts, questions and answers, splits, and data of other people's making; no torch."""

from vestige.data.corpus import Splits, split, split_by
from vestige.data.dataset import Contract, Dataset, compile_dataset, compile_to_folder, read_dataset, write_dataset
from vestige.data.graph import Edge, Graph, build_graph, load_graph, select_edges

__all__ = [
    "Contract",
    "Dataset",
    "Edge",
    "Graph",
    "Splits",
    "build_graph",
    "compile_dataset",
    "compile_to_folder",
    "load_graph",
    "read_dataset",
    "select_edges",
    "split",
    "split_by",
    "write_dataset",
]
