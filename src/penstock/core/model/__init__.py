"""The vocabulary: units of meaning that events, state and decisions share. All are values and never change."""
