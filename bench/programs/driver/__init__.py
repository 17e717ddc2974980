"""The driver of bench/programs: starts real programs, measures their working sets, compares isotherm's."""
