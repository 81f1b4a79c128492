use azure_core::error::ErrorKind;

use super::*;
use crate::metrics::CallResult;

const MARKER: &str = "planted-marker";

fn call_error(status: u16, code: &str) -> AzureCallError {
    let (target, code) = ("GET management.azure.com/x".to_owned(), code.to_owned());
    let message = "no".to_owned();
    match status {
        401 => AzureCallError::Unauthorized { target, code, message },
        403 => AzureCallError::Forbidden { target, code, message },
        404 => AzureCallError::NotFound { target, code, message },
        status => AzureCallError::UnexpectedStatus { target, status, code, message },
    }
}

#[test]
fn call_errors_are_definitive_transient_or_throttled() {
    use ProofErrorKind::{Definitive, Throttled, Transient};
    let pause = Some(Duration::from_secs(7));
    let target = || "GET management.azure.com/x".to_owned();
    let broken = || azure_core::Error::with_message(ErrorKind::Io, "reset");
    let cases = [
        (call_error(401, "ExpiredAuthenticationToken"), Definitive, "ExpiredAuthenticationToken"),
        (call_error(403, "AuthorizationFailed"), Definitive, "AuthorizationFailed"),
        (call_error(404, "SubscriptionNotFound"), Definitive, "SubscriptionNotFound"),
        (call_error(400, "MissingApiVersionParameter"), Definitive, "MissingApiVersionParameter"),
        (call_error(409, "AnotherOperationInProgress"), Transient, "AnotherOperationInProgress"),
        (call_error(500, "InternalServerError"), Transient, "InternalServerError"),
        (call_error(502, "(no code)"), Transient, "HTTP502"),
        (call_error(403, "<html>"), Definitive, "HTTP403"),
        (AzureCallError::Throttled { target: target(), pause }, Throttled, "TooManyRequests"),
        (
            AzureCallError::Malformed { target: target(), status: 200 },
            Transient,
            "AnswerUnreadable",
        ),
        (AzureCallError::InvalidTarget { target: target() }, Definitive, "InvalidTarget"),
        (
            AzureCallError::Unreachable { target: target(), source: broken() },
            Transient,
            "ServiceUnreachable",
        ),
    ];
    for (error, nature, code) in cases {
        let proof_error = ProofError::of_call(&error);
        assert_eq!((proof_error.kind, proof_error.code.as_str()), (nature, code), "{error}");
        assert!(!proof_error.hint.is_empty(), "{error}");
    }
}

#[test]
fn token_error_is_reported_with_entra_code() {
    let refused = TokenError::CoolingDown {
        endpoint: "https://login.microsoftonline.com".to_owned(),
        client: None,
        remaining: Duration::from_secs(9),
    };
    let source = azure_core::Error::from(refused);
    let error = AzureCallError::Token { target: "GET x".to_owned(), source };
    let proof_error = ProofError::of_call(&error);
    assert_eq!(
        (proof_error.code.as_str(), proof_error.kind),
        ("TokenThrottled", ProofErrorKind::Transient)
    );
    assert_eq!(proof_error.throttle_delay(1), Some(Duration::from_mins(1)));
    let held = proof_error.clone().into_inconclusive_if_throttled();
    assert_eq!(held.kind, ProofErrorKind::Throttled);
    assert_eq!(held.into_transient_if_throttled(), proof_error);
    let seconds = Duration::from_secs;
    assert_eq!(
        [9, 10].map(|pause| proof_error.requests_pause_of_at_least(seconds(pause))),
        [true, false]
    );
    let refused = ProofError::of_call(&call_error(403, "AuthorizationFailed"));
    assert_eq!(refused.clone().into_inconclusive_if_throttled(), refused);
    assert_eq!(crate::call::CallOutcome::from_result(Err(error)).result, CallResult::NoToken);
}

#[test]
fn unreadable_file_is_transient_with_older_credential() {
    let missing = || LoadError::Read {
        path: "/mnt/certs/disk".into(),
        source: std::io::Error::from(std::io::ErrorKind::NotFound),
    };
    for (holds_older, nature) in
        [(true, ProofErrorKind::Transient), (false, ProofErrorKind::Definitive)]
    {
        let proof_error = ProofError::of_file(&missing(), holds_older);
        assert_eq!(proof_error.kind, nature);
        assert_eq!(proof_error.code, "CredentialFileUnreadable");
    }
    let large = LoadError::TooLarge { path: "/mnt/certs/disk".into(), limit: 1 };
    assert_eq!(ProofError::of_file(&large, true).kind, ProofErrorKind::Definitive);
}

#[test]
fn foreign_text_is_no_code_and_messages_are_truncated() {
    let proof_error = ProofError::new(ProofErrorKind::Definitive, MARKER, "ä".repeat(4_000), "h");
    assert_eq!(proof_error.code, MARKER);
    assert!(
        proof_error.message.len() <= MAX_TEXT_LENGTH + "…".len()
            && proof_error.message.ends_with('…')
    );
    for code in ["", "two words", "a\nb", "<b>", &"x".repeat(65)] {
        assert_eq!(
            ProofError::new(ProofErrorKind::Definitive, code, "m", "h").code,
            "Unknown",
            "{code:?}"
        );
    }
}
