# Names for the scripts, which do the work.
.PHONY: demo test test-fast lint locks

demo:
	scripts/demo

test:
	scripts/test

test-fast:
	scripts/test --fast

lint:
	scripts/lint

locks:
	scripts/renew-locks
