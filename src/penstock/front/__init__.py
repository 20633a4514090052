"""Kubernetes as the front door: people apply ordinary Jobs with a label, and look at them to see what happens.

`reading` says what a home Job asks for, `status` what it should show, `telling` makes Events of the reasons on record.
A `door` serves one home cluster, the `gate` binds a Job before anything is started, the `hall` has all doors and the
journal that they follow. `wiring` opens it beside the plane.
"""
