use azure_core::error::ErrorKind;

use super::*;
use crate::metrics::CallResult;

const MARKER: &str = "planted-marker";

fn call(status: u16, code: &str) -> CallError {
    let (target, code) = ("GET management.azure.com/x".to_owned(), code.to_owned());
    let message = "no".to_owned();
    match status {
        401 => CallError::Unauthorized { target, code, message },
        403 => CallError::Forbidden { target, code, message },
        404 => CallError::NotFound { target, code, message },
        status => CallError::Refused { target, status, code, message },
    }
}

#[test]
fn who_knows_is_believed_at_once_and_trouble_on_the_way_is_not() {
    use Nature::{Final, Passing, Throttled};
    let pause = Some(Duration::from_secs(7));
    let target = || "GET management.azure.com/x".to_owned();
    let broken = || azure_core::Error::with_message(ErrorKind::Io, "reset");
    let cases = [
        (call(401, "ExpiredAuthenticationToken"), Final, "ExpiredAuthenticationToken"),
        (call(403, "AuthorizationFailed"), Final, "AuthorizationFailed"),
        (call(404, "SubscriptionNotFound"), Final, "SubscriptionNotFound"),
        (call(400, "MissingApiVersionParameter"), Final, "MissingApiVersionParameter"),
        (call(409, "AnotherOperationInProgress"), Passing, "AnotherOperationInProgress"),
        (call(500, "InternalServerError"), Passing, "InternalServerError"),
        (call(502, "(no code)"), Passing, "HTTP502"),
        (call(403, "<html>"), Final, "HTTP403"),
        (CallError::Throttled { target: target(), pause }, Throttled, "TooManyRequests"),
        (CallError::Malformed { target: target(), status: 200 }, Passing, "AnswerUnreadable"),
        (CallError::Target { target: target() }, Final, "InvalidTarget"),
        (
            CallError::Unreachable { target: target(), source: broken() },
            Passing,
            "ServiceUnreachable",
        ),
    ];
    for (error, nature, code) in cases {
        let trouble = Trouble::of_call(&error);
        assert_eq!((trouble.nature, trouble.code.as_str()), (nature, code), "{error}");
        assert!(!trouble.hint.is_empty(), "{error}");
    }
}

#[test]
fn a_token_that_could_not_be_had_is_told_by_what_entra_said() {
    let refused = TokenError::CoolingDown {
        endpoint: "https://login.microsoftonline.com".to_owned(),
        client: None,
        remaining: Duration::from_secs(9),
    };
    let source = azure_core::Error::from(refused);
    let error = CallError::Token { target: "GET x".to_owned(), source };
    let trouble = Trouble::of_call(&error);
    assert_eq!((trouble.code.as_str(), trouble.nature), ("TokenThrottled", Nature::Passing));
    assert_eq!(trouble.rest(1), Some(Duration::from_mins(1)));
    let held = trouble.clone().taking_nothing_back();
    assert_eq!(held.nature, Nature::Throttled);
    assert_eq!(held.without_token(), trouble);
    let seconds = Duration::from_secs;
    assert_eq!([9, 10].map(|pause| trouble.asks_for(seconds(pause))), [true, false]);
    let refused = Trouble::of_call(&call(403, "AuthorizationFailed"));
    assert_eq!(refused.clone().taking_nothing_back(), refused);
    assert_eq!(crate::call::Called::of(Err(error)).result, CallResult::NoToken);
}

#[test]
fn a_file_that_cannot_be_read_may_be_back_where_an_older_version_serves() {
    let missing = || LoadError::Read {
        path: "/mnt/certs/disk".into(),
        source: std::io::Error::from(std::io::ErrorKind::NotFound),
    };
    for (holds_older, nature) in [(true, Nature::Passing), (false, Nature::Final)] {
        let trouble = Trouble::of_file(&missing(), holds_older);
        assert_eq!(trouble.nature, nature);
        assert_eq!(trouble.code, "CredentialFileUnreadable");
    }
    let large = LoadError::TooLarge { path: "/mnt/certs/disk".into(), limit: 1 };
    assert_eq!(Trouble::of_file(&large, true).nature, Nature::Final);
}

#[test]
fn no_text_of_somebody_else_passes_for_a_code_and_none_is_endless() {
    let trouble = Trouble::new(Nature::Final, MARKER, "ä".repeat(4_000), "h");
    assert_eq!(trouble.code, MARKER);
    assert!(trouble.message.len() <= LONGEST_TEXT + "…".len() && trouble.message.ends_with('…'));
    for code in ["", "two words", "a\nb", "<b>", &"x".repeat(65)] {
        assert_eq!(Trouble::new(Nature::Final, code, "m", "h").code, "Unknown", "{code:?}");
    }
}
