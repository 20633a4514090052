"""Kubernetes as the front door: people apply ordinary Jobs with our label, and the Jobs' status and Events show what
happens.

The `manager` runs one `job_controller` for each home cluster. `home_jobs` is the controller's informer and work queue,
`job_follower` reads the journal for all controllers, and the `binding_driver` binds a home Job before its attempt
starts. `job_spec` parses a Job, `status` computes the status it should show, `event_recorder` turns recorded reasons
into Events. `wiring` starts the manager beside the plane.
"""
