//! Fuzzes the parser of journals: a journal lets no command write a resource outside of its stacks.
#![no_main]

use lanyard_infra::fuzzing::read_journal;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|content: &str| read_journal(content));
