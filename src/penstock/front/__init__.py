"""Kubernetes as the front door: people apply ordinary Jobs with a label, and look at them to see what happens.

`job_spec` says what a home Job asks for, `status` what it should show, `event_recorder` makes Events of the reasons on
record. A `job_controller` serves one home cluster, the `binding_driver` binds a Job before anything is started, the
`manager` has all doors and the journal that they follow. `wiring` opens it beside the plane.
"""
