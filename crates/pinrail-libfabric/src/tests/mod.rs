//! What needs the inside of the crate: a libfabric of our own, at the level of its tables of operations, that does what
//! no provider on an ordinary machine does; and remote keys that no caller could name.

mod enforcement;
mod fake;
mod faults;
mod modes;
mod pages;
