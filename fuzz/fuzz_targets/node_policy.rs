//! Policies of the node: what is read can be written and read again without a change.
#![no_main]

use lanyard_node::fuzzing::read_node_policy;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| read_node_policy(text));
