"""The demo: ten small real trainings on this machine, under a real control plane. `penstock demo` calls
`script.play`."""
