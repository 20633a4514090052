"""Kueue as a front door: Workloads whose queue has our AdmissionCheck wait until money is held for them.

`workload` reads a Workload, `workload_spec` makes the core's job of it, `workloads` is the informers' cache of one
Kueue, `workload_controller` submits Workloads and shows why they wait, `admission_steps` says what to do next for an
attempt, and the `kueue_driver` does it: bound its time, name its worker, and let it in. docs/kueue.md has the order.
"""
