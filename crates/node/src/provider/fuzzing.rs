//! Entry points for fuzzing the parsers of external messages; not part of the public interface.

use lanyard_grpc::provider::{MountRequest, MountResponse};
use lanyard_volume::{FileEntry, Payload};

use super::provider_server::ParsedMountRequest;
use super::socket::parse_response;
use crate::policy::NodePolicy;

/// Parses the response of an external provider. An accepted response can be published.
///
/// # Panics
/// If an accepted response is not valid volume content.
pub fn read_provider_answer(answer: MountResponse) {
    let Ok(response) = parse_response(answer) else { return };
    let entries: Vec<_> = response
        .files
        .iter()
        .map(|file| {
            let mode = file.mode.unwrap_or(0o644);
            FileEntry::new(file.path.clone(), file.content.expose(), mode)
        })
        .collect();
    assert!(Payload::parse(&entries).is_ok(), "accepted and not to be published");
    assert!(!response.versions.is_empty(), "accepted without a version");
    assert!(response.versions.is_sorted_by(|one, next| one.id < next.id), "ids in order, once");
}

/// Parses the mount request of a driver. An error does not repeat the request.
///
/// # Panics
/// If the error contains a long piece of the request.
pub fn read_provider_request(mut request: MountRequest) {
    request.attributes.push_str(MARK);
    request.secrets.push_str(MARK);
    let texts = [request.attributes.clone(), request.secrets.clone()];
    let Err(problem) = ParsedMountRequest::parse(request) else { return };
    let problem = format!("{problem} {problem:?}");
    for text in texts.iter().filter(|text| text.len() >= LONG) {
        assert!(!problem.contains(text.as_str()), "the error repeats the request");
    }
}

/// Parses a policy. A parsed policy can be serialized and parsed again without a change.
///
/// # Panics
/// If it cannot.
pub fn read_node_policy(text: &str) {
    let Ok(policy) = NodePolicy::parse(text) else { return };
    let written = serde_json::to_string(&policy.to_document()).unwrap_or_default();
    assert_eq!(NodePolicy::parse(&written), Ok(policy), "written and read again");
}

/// A suffix of each text. A fuzzer learns the words of the messages and sends them; JSON ignores trailing
/// blanks, and no message has so many.
const MARK: &str = "        ";

/// Shorter texts occur in every message.
const LONG: usize = 60;
