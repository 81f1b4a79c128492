//! What other people's providers answer and what other people's drivers ask: as messages, and as
//! the two JSON texts of a request on lines of their own, so that a change reaches what is inside.
#![no_main]

use lanyard_grpc::provider::{MountRequest, MountResponse};
use lanyard_node::fuzzing::{read_provider_answer, read_provider_request};
use libfuzzer_sys::fuzz_target;
use prost::Message;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(answer) = MountResponse::decode(bytes) {
        read_provider_answer(answer);
    }
    if let Ok(request) = MountRequest::decode(bytes) {
        read_provider_request(request);
    }
    let text = String::from_utf8_lossy(bytes);
    let (attributes, secrets) = text.split_once('\n').unwrap_or((&text, "null"));
    read_provider_request(MountRequest {
        attributes: attributes.to_owned(),
        secrets: secrets.to_owned(),
        target_path: "/target".to_owned(),
        permission: "420".to_owned(),
        current_object_version: Vec::new(),
    });
});
