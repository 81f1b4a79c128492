use lanyard_credential::TokenError;

use super::*;
use crate::proof_error::ProofErrorKind;

fn call_error(status: u16) -> AzureCallError {
    let target = "GET management.azure.com/x".to_owned();
    let (code, message) = ("Code".to_owned(), "no".to_owned());
    match status {
        401 => AzureCallError::Unauthorized { target, code, message },
        403 => AzureCallError::Forbidden { target, code, message },
        _ => AzureCallError::UnexpectedStatus { target, status, code, message },
    }
}

#[test]
fn failed_probe_delay_depends_on_error() {
    let throttled = |pause: Option<u64>| AzureCallError::Throttled {
        target: "GET x".to_owned(),
        pause: pause.map(Duration::from_secs),
    };
    let cases = [
        (throttled(Some(900)), 900),
        // A probe is rare, so a short Retry-After is extended to save the rate limit.
        (throttled(Some(17)), 300),
        (throttled(None), 300),
        (call_error(403), 600),
        (call_error(409), 30),
        (call_error(401), 120),
        (call_error(500), 120),
        (call_error(404), 120),
    ];
    for (error, seconds) in cases {
        let attempt = ProbeAttempt::from_call_error(&error);
        let interval = Duration::from_mins(10);
        assert_eq!(attempt.next_delay(interval, 0.0), Duration::from_secs(seconds), "{error}");
        // Jitter only adds, so a pause that the service asks for is never shortened.
        assert!(attempt.next_delay(interval, 1.0) > Duration::from_secs(seconds), "{error}");
    }
    let good = ProbeAttempt::good("succeeded".to_owned());
    assert_eq!(good.next_delay(Duration::from_mins(10), 0.0), Duration::from_mins(10));
}

#[test]
fn probe_reason_depends_on_error() {
    let cases = [
        (call_error(401), "InvalidAzureCredentials", ProofErrorKind::Definitive),
        (call_error(403), "AzureError", ProofErrorKind::Definitive),
        (call_error(409), "AzureError", ProofErrorKind::Transient),
        (call_error(503), "AzureError", ProofErrorKind::Transient),
    ];
    for (error, reason, nature) in cases {
        let proof_error = ProbeAttempt::from_call_error(&error).outcome.unwrap_err();
        assert_eq!((proof_error.code.as_str(), proof_error.kind), (reason, nature), "{error}");
        assert!(proof_error.message.contains("Code"), "the service's code is in the message");
    }
}

#[test]
fn throttled_probe_is_inconclusive() {
    let target = || "GET x".to_owned();
    let by_entra = TokenError::CoolingDown {
        endpoint: "https://login.microsoftonline.com".to_owned(),
        client: None,
        remaining: Duration::from_mins(15),
    };
    let cases = [
        (AzureCallError::Throttled { target: target(), pause: None }, 300),
        (AzureCallError::Token { target: target(), source: by_entra.into() }, 900),
    ];
    for (error, seconds) in cases {
        let attempt = ProbeAttempt::from_call_error(&error);
        assert_eq!(attempt.next_delay(Duration::from_mins(10), 0.0), Duration::from_secs(seconds));
        let proof_error = attempt.outcome.unwrap_err();
        let reported = (proof_error.code.as_str(), proof_error.kind);
        assert_eq!(reported, ("TooManyRequests", ProofErrorKind::Throttled), "{error}");
    }
    // Other token errors are not throttling.
    let refused = TokenError::NoRuntime;
    let error = AzureCallError::Token { target: target(), source: refused.into() };
    assert_eq!(
        ProbeAttempt::from_call_error(&error).outcome.unwrap_err().code,
        "InvalidAzureCredentials"
    );
}
