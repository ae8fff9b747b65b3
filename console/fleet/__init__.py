"""The hub that agents dial: enrolment, liveness, relay, delivery of units."""
