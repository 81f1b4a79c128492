//! The emulated time: reads, advances and stops it.

use http::StatusCode;
use jiff::SignedDuration;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use serde::Deserialize;
use serde_json::json;

use super::{control_error, parse_body};

/// The body of `POST clock`: the changes, applied in this order.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClockChangeRequest {
    /// Stops or resumes the emulated time.
    stopped: Option<bool>,
    /// Advances the emulated time by seconds. It cannot go back, because existing versions and
    /// tokens would then be dated in the future.
    #[serde(default)]
    advance_seconds: u64,
}

/// `GET clock`.
pub(super) fn read_clock(call: &OperationContext<'_>) -> ServiceReply {
    ServiceReply::json(
        StatusCode::OK,
        &json!({
            "now": call.now,
            "stopped": call.azure().clock.is_stopped(),
            "aheadMilliseconds": call.azure().clock.ahead_milliseconds(),
        }),
    )
}

/// `POST clock`.
pub(super) fn change_clock(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let body: ClockChangeRequest = parse_body(call)?;
    let before = *call.azure().clock;
    let set = match body.stopped {
        Some(true) => before.stop_at(call.now),
        Some(false) => before.resume_from(call.system_now),
        None => before,
    };
    let by = i64::try_from(body.advance_seconds).map(SignedDuration::from_secs).ok();
    let after = by.and_then(|by| set.advance_by(by)).ok_or_else(|| {
        control_error(
            StatusCode::BAD_REQUEST,
            "BodyInvalid",
            "`advanceSeconds` leads more than a hundred years away.",
        )
    })?;
    *call.azure_mut().clock = after;
    call.now = after.emulated_time(call.system_now);
    Ok(read_clock(call))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use crate::testing::{APP, EngineFixture, SECRET, azure_with_test_principals, reply_json};
    use lanyard_emulator_core::ingress::Ingress;

    fn post_clock(probe: &EngineFixture, change: &Value) -> (u16, Value) {
        let url = "http://127.0.0.1/lanyard/v1/clock";
        let header = [("x-lanyard-control", "1")];
        let reply =
            probe.send_request(Ingress::Port, &Method::POST, url, &header, &change.to_string());
        (reply.status.as_u16(), reply_json(&reply))
    }

    #[test]
    fn advancing_the_clock_expires_secrets() {
        let probe = EngineFixture::new(azure_with_test_principals());
        let ask = || probe.request_token(&[("client_id", APP), ("client_secret", SECRET)]).status;
        assert_eq!(ask(), 200);
        let month = json!({ "advanceSeconds": 31 * 86_400 });
        let (status, reply) = post_clock(&probe, &month);
        assert_eq!((status, &reply["now"]), (200, &json!("2026-12-22T12:00:00Z")));
        assert_eq!(ask(), 401);
    }

    #[test]
    fn stopped_clock_ignores_the_system_clock() {
        let probe = EngineFixture::new(azure_with_test_principals());
        let hour = std::time::Duration::from_hours(1);
        assert_eq!(post_clock(&probe, &json!({ "stopped": true })).1["stopped"], true);
        probe.clock.advance(hour);
        let (_, reply) = post_clock(&probe, &json!({ "stopped": true, "advanceSeconds": 60 }));
        assert_eq!(reply["now"], "2026-11-21T12:01:00Z");
        let (_, reply) = post_clock(&probe, &json!({ "stopped": false }));
        assert_eq!(
            (&reply["now"], &reply["stopped"]),
            (&json!("2026-11-21T12:01:00Z"), &json!(false))
        );
        probe.clock.advance(hour);
        let url = "http://127.0.0.1/lanyard/v1/clock";
        let reply = reply_json(&probe.get(Ingress::Port, url, &[("x-lanyard-control", "1")]));
        assert_eq!(reply["now"], "2026-11-21T13:01:00Z");
    }

    #[test]
    fn clock_cannot_move_back_or_beyond_the_limit() {
        let probe = EngineFixture::new(azure_with_test_principals());
        for wrong in [
            json!({ "advanceSeconds": u64::MAX }),
            json!({ "advanceSeconds": 300_000_000_000_u64 }),
            json!({ "advanceSeconds": -1 }),
            json!({ "advance": 1 }),
        ] {
            assert_eq!(post_clock(&probe, &wrong).0, 400, "{wrong}");
        }
        assert_eq!(post_clock(&probe, &json!({})).1["aheadMilliseconds"], 0);
    }
}
