#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pinrail_fuzz::descriptor_json(bytes));
