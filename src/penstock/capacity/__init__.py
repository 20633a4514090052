"""What rents nodes: `contract` says in words what each way to rent keeps; one file for each way."""
