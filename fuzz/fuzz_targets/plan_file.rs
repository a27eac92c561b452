#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pinrail_fuzz::plan_file(bytes));
