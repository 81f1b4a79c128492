use lanyard_credential::TokenError;

use super::*;
use crate::trouble::Nature;

fn refused(status: u16) -> CallError {
    let target = "GET management.azure.com/x".to_owned();
    let (code, message) = ("Code".to_owned(), "no".to_owned());
    match status {
        401 => CallError::Unauthorized { target, code, message },
        403 => CallError::Forbidden { target, code, message },
        _ => CallError::Refused { target, status, code, message },
    }
}

#[test]
fn a_refused_probe_waits_as_long_as_its_refusal_deserves() {
    let throttled = |pause: Option<u64>| CallError::Throttled {
        target: "GET x".to_owned(),
        pause: pause.map(Duration::from_secs),
    };
    let cases = [
        (throttled(Some(900)), 900),
        // It is asked rarely, and those who ask often need what there is.
        (throttled(Some(17)), 300),
        (throttled(None), 300),
        (refused(403), 600),
        (refused(409), 30),
        (refused(401), 120),
        (refused(500), 120),
        (refused(404), 120),
    ];
    for (error, seconds) in cases {
        let made = Made::refused(&error);
        let interval = Duration::from_mins(10);
        assert_eq!(made.next_in(interval, 0.0), Duration::from_secs(seconds), "{error}");
        // Chance only adds: nobody is asked sooner than it wishes.
        assert!(made.next_in(interval, 1.0) > Duration::from_secs(seconds), "{error}");
    }
    let good = Made::good("all is well".to_owned());
    assert_eq!(good.next_in(Duration::from_mins(10), 0.5), Duration::from_mins(10));
}

#[test]
fn the_reason_says_who_is_to_blame() {
    let cases = [
        (refused(401), "InvalidAzureCredentials", Nature::Final),
        (refused(403), "AzureError", Nature::Final),
        (refused(409), "AzureError", Nature::Passing),
        (refused(503), "AzureError", Nature::Passing),
    ];
    for (error, reason, nature) in cases {
        let trouble = Made::refused(&error).outcome.unwrap_err();
        assert_eq!((trouble.code.as_str(), trouble.nature), (reason, nature), "{error}");
        assert!(trouble.message.contains("Code"), "the service's code is in the message");
    }
}

#[test]
fn a_probe_that_is_throttled_blames_nobody() {
    let target = || "GET x".to_owned();
    let by_entra = TokenError::CoolingDown {
        endpoint: "https://login.microsoftonline.com".to_owned(),
        client: None,
        remaining: Duration::from_mins(15),
    };
    let cases = [
        (CallError::Throttled { target: target(), pause: None }, 300),
        (CallError::Token { target: target(), source: by_entra.into() }, 900),
    ];
    for (error, seconds) in cases {
        let made = Made::refused(&error);
        assert_eq!(made.next_in(Duration::from_mins(10), 0.0), Duration::from_secs(seconds));
        let trouble = made.outcome.unwrap_err();
        let said = (trouble.code.as_str(), trouble.nature);
        assert_eq!(said, ("TooManyRequests", Nature::Throttled), "{error}");
    }
    // A token that Entra refuses is another matter.
    let refused = TokenError::NoRuntime;
    let error = CallError::Token { target: target(), source: refused.into() };
    assert_eq!(Made::refused(&error).outcome.unwrap_err().code, "InvalidAzureCredentials");
}
