//! Fuzzes the local Azure's parser and evaluation of conditions of role assignments. The first line is the action
//! of the request, and the rest the condition.
#![no_main]

use lanyard_emulator::fuzzing::evaluate_condition;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let (action, condition) = text.split_once('\n').unwrap_or_default();
        evaluate_condition(condition, action);
    }
});
