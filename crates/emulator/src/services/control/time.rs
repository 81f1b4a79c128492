//! The time of the world: to look at, to move, to stop.

use http::StatusCode;
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::json;

use super::{body, refused};
use crate::call::Call;
use crate::request::Reply;

/// What `POST clock` takes: steps, in this order.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Change {
    /// Stops the world, or lets it go on.
    stopped: Option<bool>,
    /// Moves it on. It never goes back: versions and tokens would come from the future.
    #[serde(default)]
    advance_seconds: u64,
}

/// `GET clock`.
pub(super) fn read(call: &Call<'_>) -> Reply {
    Reply::json(
        StatusCode::OK,
        &json!({
            "now": call.now,
            "stopped": call.world().clock.is_stopped(),
            "aheadMilliseconds": call.world().clock.ahead_milliseconds(),
        }),
    )
}

/// `POST clock`.
pub(super) fn change(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let asked: Change = body(call)?;
    let before = call.world().clock;
    let set = match asked.stopped {
        Some(true) => before.stopped(call.now),
        Some(false) => before.started(call.machine_now),
        None => before,
    };
    let by = i64::try_from(asked.advance_seconds).map(SignedDuration::from_secs).ok();
    let after = by.and_then(|by| set.advanced(by)).ok_or_else(|| {
        refused(
            StatusCode::BAD_REQUEST,
            "BodyInvalid",
            "`advanceSeconds` leads more than a hundred years away.",
        )
    })?;
    call.world_mut().clock = after;
    call.now = after.at(call.machine_now);
    Ok(read(call))
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use crate::doors::Door;
    use crate::testing::{APP, Probe, SECRET, body, world};

    fn clock(probe: &Probe, change: &Value) -> (u16, Value) {
        let url = "http://127.0.0.1/lanyard/v1/clock";
        let header = [("x-lanyard-control", "1")];
        let reply = probe.ask(Door::Port, &Method::POST, url, &header, &change.to_string());
        (reply.status.as_u16(), body(&reply))
    }

    #[test]
    fn the_world_is_moved_on_and_its_secrets_expire() {
        let probe = Probe::new(world());
        let ask = || probe.token(&[("client_id", APP), ("client_secret", SECRET)]).status;
        assert_eq!(ask(), 200);
        let month = json!({ "advanceSeconds": 31 * 86_400 });
        let (status, reply) = clock(&probe, &month);
        assert_eq!((status, &reply["now"]), (200, &json!("2026-12-22T12:00:00Z")));
        assert_eq!(ask(), 401);
    }

    #[test]
    fn a_stopped_world_stands_still_while_the_clock_goes_on() {
        let probe = Probe::new(world());
        let hour = std::time::Duration::from_hours(1);
        assert_eq!(clock(&probe, &json!({ "stopped": true })).1["stopped"], true);
        probe.clock.advance(hour);
        let (_, reply) = clock(&probe, &json!({ "stopped": true, "advanceSeconds": 60 }));
        assert_eq!(reply["now"], "2026-11-21T12:01:00Z");
        let (_, reply) = clock(&probe, &json!({ "stopped": false }));
        assert_eq!(
            (&reply["now"], &reply["stopped"]),
            (&json!("2026-11-21T12:01:00Z"), &json!(false))
        );
        probe.clock.advance(hour);
        let url = "http://127.0.0.1/lanyard/v1/clock";
        let reply = body(&probe.get(Door::Port, url, &[("x-lanyard-control", "1")]));
        assert_eq!(reply["now"], "2026-11-21T13:01:00Z");
    }

    #[test]
    fn time_has_an_end_and_no_way_back() {
        let probe = Probe::new(world());
        for wrong in [
            json!({ "advanceSeconds": u64::MAX }),
            json!({ "advanceSeconds": 300_000_000_000_u64 }),
            json!({ "advanceSeconds": -1 }),
            json!({ "advance": 1 }),
        ] {
            assert_eq!(clock(&probe, &wrong).0, 400, "{wrong}");
        }
        assert_eq!(clock(&probe, &json!({})).1["aheadMilliseconds"], 0);
    }
}
