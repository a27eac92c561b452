//! A libfabric of our own, at the level of its tables of operations, that does what no provider on an ordinary machine
//! does.

mod conformance;
mod fake;
mod faults;
mod modes;
mod pages;
