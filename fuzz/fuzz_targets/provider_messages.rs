//! Fuzzes the parsers for responses of third-party providers and for requests of third-party drivers: the
//! input is a message, or the two JSON texts of a request on separate lines, so that mutations reach their
//! fields.
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
