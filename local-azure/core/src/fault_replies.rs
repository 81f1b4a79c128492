//! The replies of fault rules, in the format of each service.

use http::StatusCode;
use jiff::SignedDuration;
use lanyard_emulator_state::fault_rules::{ErrorFormat, FaultEffect, FaultHit, ResetTime};
use lanyard_emulator_state::request::ServiceReply;

use crate::emulated_service::EngineError;

/// How long the client is asked to wait.
#[derive(Debug, Clone, Copy)]
struct RequestedWait {
    /// `Retry-After`.
    seconds: Option<u32>,
    /// `retry-after-ms`.
    milliseconds: Option<u32>,
}

impl RequestedWait {
    /// The given times; without them, the time until the rate limit permits a request, at least one
    /// second.
    fn of_throttling(
        seconds: Option<u32>,
        milliseconds: Option<u32>,
        limit: Option<SignedDuration>,
    ) -> Self {
        if seconds.is_some() || milliseconds.is_some() {
            return Self { seconds, milliseconds };
        }
        let millis = limit.map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap_or_default());
        let seconds = u32::try_from(millis.div_ceil(1_000).max(1)).unwrap_or(u32::MAX);
        Self { seconds: Some(seconds), milliseconds: None }
    }

    fn add_headers(self, reply: ServiceReply) -> ServiceReply {
        let reply = match self.seconds {
            Some(seconds) => reply.with_header("retry-after", seconds.to_string()),
            None => reply,
        };
        match self.milliseconds {
            Some(milliseconds) => reply.with_header("retry-after-ms", milliseconds.to_string()),
            None => reply,
        }
    }

    /// The wait in whole seconds, for messages.
    fn whole_seconds(self) -> u32 {
        let millis = self.milliseconds.map(|millis| millis.div_ceil(1_000));
        self.seconds.or(millis).unwrap_or(1)
    }
}

/// The page of a gateway that could not reach the service.
fn gateway_page(status: StatusCode) -> ServiceReply {
    let page = format!(
        "<html>\r\n<head><title>{status}</title></head>\r\n<body>\r\n<center><h1>{status}</h1></center>\r\n\
         <hr><center>Microsoft-Azure-Application-Gateway/v2</center>\r\n</body>\r\n</html>\r\n"
    );
    ServiceReply::empty(status).with_body("text/html", page)
}

/// The reply that replaces the service's own, if the effect has one. `error_reply` is the error format of the
/// service. [`FaultEffect::TokenError`] needs the token service for its reply.
pub fn replacement_reply(
    hit: &FaultHit,
    error_reply: fn(EngineError<'_>) -> ServiceReply,
) -> Option<ServiceReply> {
    let reply = match &hit.effect {
        FaultEffect::Throttle { retry_after, retry_after_ms } => {
            let wait = RequestedWait::of_throttling(*retry_after, *retry_after_ms, hit.wait);
            let (seconds, provider) = (wait.whole_seconds(), hit.provider);
            wait.add_headers(error_reply(EngineError::Throttled { seconds, provider }))
        }
        FaultEffect::Status { status, html, body, code, message, retry_after, retry_after_ms } => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let format = if *html { ErrorFormat::Html } else { body.unwrap_or_default() };
            let reply = match format {
                ErrorFormat::Html => gateway_page(status),
                ErrorFormat::Empty => ServiceReply::empty(status),
                ErrorFormat::Service => error_reply(EngineError::Injected {
                    status,
                    code: code.as_deref(),
                    message: message.as_deref().unwrap_or("A fault rule returned this error."),
                }),
            };
            RequestedWait { seconds: *retry_after, milliseconds: *retry_after_ms }
                .add_headers(reply)
        }
        FaultEffect::Reset { when: ResetTime::BeforeHeaders, .. } => {
            let reply = ServiceReply::empty(StatusCode::BAD_GATEWAY);
            return Some(reply.with_rejection_reason("connection reset"));
        }
        _ => return None,
    };
    Some(reply.with_rejection_reason("injected fault"))
}
