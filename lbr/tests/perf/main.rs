//! Perf events: rings that a model of the kernel wrote, and the events that this host's kernel has.

mod live;
mod rings;
