use azure_core::http::StatusCode;

use super::*;

const NOW: i64 = 1_795_262_400;

fn read(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> EntraError {
    let mut wire = Headers::new();
    for (name, value) in headers {
        wire.insert(*name, *value);
    }
    let response = RawResponse::from_bytes(StatusCode::from(status), wire, body.to_owned());
    let endpoint =
        "https://user:planted-marker@login.example/t/oauth2/v2.0/token?secret=1".parse().unwrap();
    let asked = TokenRequestInfo {
        endpoint: &endpoint,
        client_id: "client-1",
        request_id: Uuid::from_u128(1),
        proof: "planted.marker.assertion",
    };
    EntraError::from_response(asked, &response, Timestamp::from_second(NOW).unwrap())
}

#[test]
fn error_message_names_endpoint_client_and_response() {
    let error = read(
        401,
        &[],
        r#"{"error":"invalid_client","error_description":"AADSTS700027: no key.","error_codes":[700027],"trace_id":"tr","correlation_id":"co","timestamp":"2026-11-21 12:00:00Z"}"#,
    );
    assert_eq!(
        error.to_string(),
        "https://login.example/t/oauth2/v2.0/token refused a token to client client-1 with status \
         401, invalid_client: AADSTS700027: no key (client-request-id \
         00000000-0000-0000-0000-000000000001, trace id tr, correlation id co, 2026-11-21 12:00:00Z)"
    );
    assert!(error.is_invalid_client());
    assert!(error.hint().unwrap().contains("x5c"));
}

#[test]
fn the_retry_class_follows_status_error_and_code() {
    let throttled = |after| RetryClass::Throttled { after };
    for (status, body, expected) in [
        (429, "Too Many Requests", throttled(None)),
        (400, r#"{"error":"invalid_grant","error_codes":[50196]}"#, throttled(None)),
        (408, "", RetryClass::Transient),
        (503, "<html>", RetryClass::Transient),
        (400, r#"{"error":"temporarily_unavailable"}"#, RetryClass::Transient),
        (400, r#"{"error":"invalid_request","error_codes":[90033]}"#, RetryClass::Transient),
        (400, r#"{"error":"invalid_request","error_codes":[90061]}"#, RetryClass::Transient),
        (400, r#"{"error":"invalid_scope"}"#, RetryClass::Invalid),
        (401, r#"{"error":"invalid_client"}"#, RetryClass::Denied),
        (403, "<html>blocked</html>", RetryClass::Denied),
        (302, "", RetryClass::Denied),
    ] {
        assert_eq!(read(status, &[], body).retry_class(), expected, "{status} {body}");
    }
}

#[test]
fn hint_follows_the_code_and_is_not_guessed() {
    for (body, expected) in [
        (r#"{"error":"invalid_client","error_codes":[700027]}"#, "x5c"),
        (r#"{"error":"invalid_client"}"#, "belongs to this client id"),
        (
            r#"{"error":"invalid_client","error_description":"AADSTS700999: The moon is full."}"#,
            "`AADSTS700999` of Entra ID, for which lanyard has no advice; the service says: AADSTS700999: The moon is full",
        ),
        (r#"{"error":"moonlight"}"#, "look up the error code `moonlight`"),
        ("<html>", "no proxy or gateway answers instead of Entra ID"),
    ] {
        let hint = read(400, &[], body).hint().unwrap();
        assert!(hint.contains(expected), "{body}: {hint}");
    }
    assert!(read(429, &[], "Too Many Requests").hint().unwrap().contains("Retry-After"));
}

#[test]
fn unknown_scope_errors_are_not_identity_errors() {
    for (error, code, about) in [
        ("invalid_scope", 70_011, true),
        ("invalid_resource", 500_011, true),
        ("invalid_request", 500_011, true),
        ("invalid_request", 90_002, false),
        ("invalid_scope", 700_027, false),
        ("invalid_client", 700_027, false),
        ("unauthorized_client", 700_016, false),
    ] {
        let body = format!(r#"{{"error":"{error}","error_codes":[{code}]}}"#);
        assert_eq!(read(400, &[], &body).is_scope_error(), about, "{error} {code}");
    }
    assert!(read(400, &[], r#"{"error":"invalid_scope"}"#).is_scope_error());
}

#[test]
fn a_url_in_a_message_keeps_its_port_and_loses_its_secrets() {
    for (url, shown) in [
        ("https://user:pass@login.example:8443/t?sig=1#f", "https://login.example:8443/t"),
        ("https://pass@login.example/t", "https://login.example/t"),
        ("http://169.254.169.254/metadata", "http://169.254.169.254/metadata"),
        ("https://[::1]:443/", "https://[::1]/"),
    ] {
        assert_eq!(display_url(&url.parse().unwrap()), shown);
    }
}

#[test]
fn retry_after_is_read_from_error_responses() {
    let error = read(429, &[("retry-after", "60")], "");
    assert_eq!(error.retry_after(), Some(Duration::from_mins(1)));
    assert_eq!(read(429, &[("retry-after", "0")], "").retry_after(), None);
}

#[test]
fn clock_skew_is_measured_and_reported() {
    let body = r#"{"error":"invalid_client","error_codes":[700024]}"#;
    let behind = read(401, &[("date", "Sat, 21 Nov 2026 12:10:00 GMT")], body);
    assert_eq!(behind.clock_skew(), Some(SignedDuration::from_secs(600)));
    assert!(behind.hint().unwrap().contains("600 s behind"));
    let ahead = read(401, &[("date", "Sat, 21 Nov 2026 11:58:20 GMT")], body);
    assert!(ahead.hint().unwrap().contains("100 s ahead of"));
    let right = read(401, &[("date", "Sat, 21 Nov 2026 12:00:02 GMT")], body);
    assert!(right.hint().unwrap().contains("service account token"));
}

#[test]
fn errors_and_responses_never_repeat_the_assertion() {
    for body in [
        r#"{"error":"planted.marker.assertion","error_description":"planted.marker.assertion"}"#,
        "<html>client_assertion=planted.marker.assertion</html>",
        "{\"error\":\"planted.marker.assertion",
    ] {
        let error = read(400, &[("set-cookie", "planted.marker.assertion")], body);
        let body = String::from_utf8_lossy(error.response().body()).into_owned();
        let headers = error.response().headers().get_optional_string(&"set-cookie".into());
        let printed = format!("{error} {error:?} {body} {headers:?} {:?}", error.hint());
        assert!(!printed.contains("marker"), "{printed}");
        assert!(!printed.contains("secret=1"), "{printed}");
    }
}
