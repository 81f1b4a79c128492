//! The effects of fault rules.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::FaultHit;
use super::reply_change::{ReplyChange, TokenDefect};

/// The effect of a fault on a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    rename_all_fields = "camelCase",
    tag = "type",
    deny_unknown_fields
)]
pub enum FaultEffect {
    /// 429 in the format of each service.
    Throttle {
        /// The `Retry-After` header in seconds. Without both headers, the time until the rate limit permits
        /// the request, or one second.
        #[serde(default, alias = "retry_after", skip_serializing_if = "Option::is_none")]
        retry_after: Option<u32>,
        /// The `retry-after-ms` header in milliseconds.
        #[serde(default, alias = "retry_after_ms", skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u32>,
    },
    /// A status with an error in the format of the service, or with another body.
    Status {
        status: u16,
        /// Whether the body is the HTML page of a gateway; short for `"body": "html"`.
        #[serde(default)]
        html: bool,
        /// The body; by default an error in the format of the service.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<ErrorFormat>,
        /// The error code in the body.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// The error message in the body.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// The `Retry-After` header in seconds.
        #[serde(default, alias = "retry_after")]
        retry_after: Option<u32>,
        /// The `retry-after-ms` header in milliseconds.
        #[serde(default, alias = "retry_after_ms", skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u32>,
    },
    /// The regular reply, delayed.
    Latency {
        /// The delay in milliseconds of the system clock.
        milliseconds: u64,
        /// The greatest further delay in milliseconds.
        #[serde(default)]
        jitter: u64,
    },
    /// The regular reply. The headers are sent immediately, the body in pieces.
    SlowBody {
        /// The time until the body is complete, in milliseconds of the system clock.
        milliseconds: u64,
    },
    /// The connection is reset. The operation runs only if the headers are sent.
    Reset {
        #[serde(default)]
        when: ResetTime,
        /// How long the connection stays open before the reset, in milliseconds (system clock).
        #[serde(default)]
        hold: u64,
    },
    /// The regular reply, of which the connection delivers only the first bytes of the body.
    Truncate { bytes: usize },
    /// The token service responds with this AADSTS code.
    TokenError { code: u32 },
    /// The issued access token has a defect.
    TokenDefect { defect: TokenDefect },
    /// A list never ends: the link to its next page is the URL of the request.
    NextLinkLoop,
    /// The certificate of the TLS connection is not valid.
    Certificate { problem: CertificateProblem },
    /// The proxy accepts a `CONNECT` and then sends nothing more: it closes its direction of the connection,
    /// and reads until the client closes the other one.
    HalfClosedTunnel,
}

/// The body of an injected error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorFormat {
    /// An error in the format of the service.
    #[default]
    Service,
    /// The HTML page of a gateway in front of the service.
    Html,
    Empty,
}

/// The part of a connection that an effect changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultPhase {
    /// The tunnel of a `CONNECT` at the proxy.
    Tunnel,
    /// The TLS handshake.
    Handshake,
    /// A request and its reply.
    Request,
}

/// When a connection is reset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResetTime {
    #[default]
    BeforeHeaders,
    AfterHeaders,
}

/// The problem of a TLS certificate that a fault rule causes, so that clients do not accept it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateProblem {
    /// The certificate has expired.
    Expired,
    /// An authority signed it that the client does not trust.
    UnknownAuthority,
    /// An intermediate authority signed it, whose certificate the server does not send.
    MissingIntermediate,
    /// The certificate is for another host.
    WrongHost,
    /// There is no certificate: the server ends the handshake with an alert.
    Alert,
}

/// How the connection delivers a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReplyDelivery {
    #[default]
    Complete,
    /// The body in pieces, complete after this time.
    SlowBody(Duration),
    /// The first bytes of the body; then the connection is closed.
    Truncated(usize),
    ResetAfterHeaders,
    ResetBeforeHeaders,
}

impl FaultEffect {
    /// Rejects invalid values. The error is a sentence that states the permitted values.
    pub fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Status { status, .. } if !(200..=599).contains(status) => {
                Err("`status` is a number from 200 to 599.")
            }
            Self::Status { html: true, body: Some(_), .. } => {
                Err("A rule has `html` or `body`, not both.")
            }
            Self::Latency { milliseconds, jitter }
                if milliseconds.saturating_add(*jitter) > LONGEST_DELAY =>
            {
                Err("A delay is at most ten minutes.")
            }
            Self::SlowBody { milliseconds: delay } | Self::Reset { hold: delay, .. }
                if *delay > LONGEST_DELAY =>
            {
                Err("A delay is at most ten minutes.")
            }
            _ => Ok(()),
        }
    }

    pub const fn phase(&self) -> FaultPhase {
        match self {
            Self::HalfClosedTunnel => FaultPhase::Tunnel,
            Self::Certificate { .. } => FaultPhase::Handshake,
            _ => FaultPhase::Request,
        }
    }

    pub(crate) const fn certificate_problem(&self) -> Option<CertificateProblem> {
        match self {
            Self::Certificate { problem } => Some(*problem),
            _ => None,
        }
    }

    /// How the connection delivers the reply.
    pub const fn delivery(&self) -> ReplyDelivery {
        match self {
            Self::SlowBody { milliseconds } => {
                ReplyDelivery::SlowBody(Duration::from_millis(*milliseconds))
            }
            Self::Truncate { bytes } => ReplyDelivery::Truncated(*bytes),
            Self::Reset { when: ResetTime::BeforeHeaders, .. } => ReplyDelivery::ResetBeforeHeaders,
            Self::Reset { when: ResetTime::AfterHeaders, .. } => ReplyDelivery::ResetAfterHeaders,
            _ => ReplyDelivery::Complete,
        }
    }

    /// The change of the service's own reply; `None` if the effect does not change it.
    pub const fn reply_change(&self) -> Option<ReplyChange> {
        match self {
            Self::TokenDefect { defect } => Some(ReplyChange::TokenDefect(*defect)),
            Self::NextLinkLoop => Some(ReplyChange::NextLinkLoop),
            _ => None,
        }
    }
}

impl FaultHit {
    /// The delay of the reply.
    pub fn delay(&self) -> Duration {
        match self.effect {
            FaultEffect::Latency { milliseconds, jitter } => {
                let further = jitter.saturating_mul(u64::from(self.draw)) / 10_000;
                Duration::from_millis(milliseconds.saturating_add(further))
            }
            FaultEffect::Reset { hold, .. } => Duration::from_millis(hold),
            _ => Duration::ZERO,
        }
    }
}

/// Ten minutes, in milliseconds.
const LONGEST_DELAY: u64 = 600_000;
