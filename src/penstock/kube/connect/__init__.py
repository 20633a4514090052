"""What `penstock connect` does to a cluster: look at the way there and at its GPUs, make an account, write the site."""
