//! Fuzzes the parser of node policies: a parsed policy is unchanged after writing and parsing it again.
#![no_main]

use lanyard_node::fuzzing::read_node_policy;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| read_node_policy(text));
