use jiff::SignedDuration;
use lanyard_emulator_core::fault_replies::replacement_reply;
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::fault_rules::{FaultHit, ThrottlingProvider};
use lanyard_emulator_state::request::ServiceReply;
use serde_json::Value;

use crate::services::services;
use crate::testing::reply_json;

fn replacement(hit: &FaultHit, service: AzureService) -> Option<ServiceReply> {
    replacement_reply(hit, services().error_format(service))
}

#[test]
fn throttling_uses_the_format_of_each_service() {
    let hit = |effect: Value, wait| FaultHit {
        rule_name: "t".to_owned(),
        effect: serde_json::from_value(effect).unwrap(),
        wait,
        provider: None,
        draw: 0,
    };
    let throttle = serde_json::json!({ "type": "throttle", "retryAfterMs": 250 });
    for (service, status, expected) in [
        (AzureService::Entra, 429, "Too Many Requests"),
        (AzureService::KeyVault, 429, r#""code":"Throttled""#),
        (AzureService::Arm, 429, r#""code":"SubscriptionRequestsThrottled""#),
        (AzureService::Graph, 429, r#""innerError""#),
        (AzureService::Imds, 429, r#""error":"too_many_requests""#),
        (AzureService::Blob, 503, "<Code>ServerBusy</Code>"),
    ] {
        let reply = replacement(&hit(throttle.clone(), None), service).unwrap();
        let body = String::from_utf8(reply.body.to_vec()).unwrap();
        assert_eq!(reply.status.as_u16(), status);
        assert!(body.contains(expected), "{body}");
        assert_eq!(reply.header("retry-after-ms"), Some("250"));
    }
    let plain = serde_json::json!({ "type": "throttle" });
    for (provider, code) in [
        (ThrottlingProvider::ManagedIdentity, "429"),
        (ThrottlingProvider::ContainerService, "Throttled"),
    ] {
        let wait = Some(SignedDuration::from_secs(4));
        let hit = FaultHit { provider: Some(provider), ..hit(plain.clone(), wait) };
        let reply = replacement(&hit, AzureService::Arm).unwrap();
        assert_eq!(reply_json(&reply)["error"]["code"], code);
        assert_eq!((reply.status.as_u16(), reply.header("retry-after")), (429, Some("4")));
    }
    for (wait, expected) in [(None, "1"), (Some(4_200), "5"), (Some(3_000), "3"), (Some(1), "1")] {
        let wait = wait.map(SignedDuration::from_millis);
        let reply = replacement(&hit(plain.clone(), wait), AzureService::Arm).unwrap();
        assert_eq!(reply.header("retry-after"), Some(expected), "{wait:?}");
    }
}

#[test]
fn injected_status_has_the_body_that_the_rule_names() {
    let reply = |service, effect: Value| {
        let effect = serde_json::from_value(effect).unwrap();
        let hit =
            FaultHit { rule_name: "s".to_owned(), effect, wait: None, provider: None, draw: 0 };
        replacement(&hit, service).unwrap()
    };
    let status = |fields: Value| {
        let mut effect = serde_json::json!({ "type": "status", "status": 503 });
        effect.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        effect
    };
    let body = |reply: &ServiceReply| String::from_utf8(reply.body.to_vec()).unwrap();
    let named = status(serde_json::json!({ "code": "QuotaExceeded", "message": "No cores left." }));
    let text = body(&reply(AzureService::Arm, named.clone()));
    assert_eq!(text, r#"{"error":{"code":"QuotaExceeded","message":"No cores left."}}"#);
    let text = body(&reply(AzureService::Entra, status(serde_json::json!({}))));
    assert!(text.contains(r#""error":"temporarily_unavailable""#), "{text}");
    assert!(body(&reply(AzureService::Blob, named)).contains("<Code>QuotaExceeded</Code>"));
    let html = body(&reply(AzureService::Arm, status(serde_json::json!({ "body": "html" }))));
    assert!(html.starts_with("<html>"), "{html}");
    assert_eq!(body(&reply(AzureService::Arm, status(serde_json::json!({ "body": "empty" })))), "");
}
