//! Readers of messages from outside, open to fuzzing; not part of the public interface.

use lanyard_grpc::provider::{MountRequest, MountResponse};

use super::provider_server::ParsedMountRequest;
use super::socket::parse_response;
use crate::payload::{FileEntry, Payload};
use crate::policy::NodePolicy;

/// Reads the answer of another provider. What is accepted can be published.
///
/// # Panics
/// If an accepted answer could not be the content of a volume.
pub fn read_provider_answer(answer: MountResponse) {
    let Ok(filling) = parse_response(answer) else { return };
    let entries: Vec<_> = filling
        .files
        .iter()
        .map(|file| {
            let mode = file.mode.unwrap_or(0o644);
            FileEntry::new(file.path.clone(), file.content.expose(), mode)
        })
        .collect();
    assert!(Payload::parse(&entries).is_ok(), "accepted and not to be published");
    assert!(!filling.versions.is_empty(), "accepted without a version");
    assert!(filling.versions.is_sorted_by(|one, next| one.id < next.id), "ids in order, once");
}

/// Reads the request of another driver. What is refused is not repeated.
///
/// # Panics
/// If the refusal holds a long piece of the request.
pub fn read_provider_request(mut request: MountRequest) {
    request.attributes.push_str(MARK);
    request.secrets.push_str(MARK);
    let texts = [request.attributes.clone(), request.secrets.clone()];
    let Err(problem) = ParsedMountRequest::parse(request) else { return };
    let problem = format!("{problem} {problem:?}");
    for text in texts.iter().filter(|text| text.len() >= LONG) {
        assert!(!problem.contains(text.as_str()), "the refusal repeats the request");
    }
}

/// Reads the text as a policy. What is read can be written and read again without a change.
///
/// # Panics
/// If it can not.
pub fn read_node_policy(text: &str) {
    let Ok(policy) = NodePolicy::parse(text) else { return };
    let written = serde_json::to_string(&policy.to_document()).unwrap_or_default();
    assert_eq!(NodePolicy::parse(&written), Ok(policy), "written and read again");
}

/// Follows each text. A fuzzer learns the words of our messages and sends them; JSON does not mind
/// blanks behind it, and no message of ours has so many.
const MARK: &str = "        ";

/// Shorter texts stand in every message.
const LONG: usize = 60;
