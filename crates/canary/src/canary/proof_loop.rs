//! One round of proof: the file, a token, the granted call.

use std::time::Duration;

use azure_core::credentials::TokenCredential as _;
use lanyard_azure::AuthenticatedClient;
use lanyard_credential::KeyHealth;
use lanyard_vocabulary::Hop;
use tokio::sync::mpsc;

use super::probe_task::ProbeReport;
use super::{CanaryDependencies, CanarySettings, IdentityReporter};
use crate::call::{CallOutcome, GrantedCall};
use crate::credential::FollowedCredential;
use crate::delays::with_jitter;
use crate::metrics::CallResult;
use crate::proof_error::{ProofError, ProofErrorKind};
use crate::timeout::with_timeout;

/// The rounds of a canary with an open credential file.
#[derive(Debug)]
pub(super) struct ProofLoop {
    scope: String,
    call: Option<GrantedCall>,
    interval: Duration,
    token_interval: Duration,
    parts: CanaryDependencies,
    followed_credential: FollowedCredential,
    caller: AuthenticatedClient,
    /// The generation whose key Entra was asked with.
    proven_generation: Option<u64>,
    /// When Entra is asked for a new token, whatever is held.
    token_due: Duration,
    /// How long Entra is left alone.
    token_backoff: ThrottleBackoff,
    /// How long the service is left alone.
    call_backoff: ThrottleBackoff,
    /// The newest generation that was counted.
    counted_generation: u64,
    was_authenticated: bool,
}

impl ProofLoop {
    pub(super) fn new(
        settings: &CanarySettings,
        parts: CanaryDependencies,
        followed_credential: FollowedCredential,
    ) -> Self {
        Self {
            scope: settings.scope(),
            call: settings.call.clone(),
            interval: settings.interval,
            token_interval: settings.token_interval,
            caller: settings.caller(&followed_credential, &parts.transport),
            parts,
            counted_generation: followed_credential.credential.generation().number(),
            followed_credential,
            proven_generation: None,
            token_due: Duration::ZERO,
            token_backoff: ThrottleBackoff::default(),
            call_backoff: ThrottleBackoff::default(),
            was_authenticated: false,
        }
    }

    /// Makes a round every interval, and one after each rotation.
    pub(super) async fn run(
        mut self,
        board: &mut IdentityReporter,
        mut probed: mpsc::Receiver<ProbeReport>,
    ) {
        loop {
            self.followed_credential.load_status.mark_unchanged();
            self.prove_once(board).await;
            board.publish_facts();
            let mut pause = self.parts.clock.sleep(with_jitter(self.interval, fastrand::f64()));
            loop {
                tokio::select! {
                    () = &mut pause => break,
                    Ok(()) = self.followed_credential.load_status.changed() => break,
                    Some(probing) = probed.recv() => board.record_probe(probing),
                }
            }
        }
    }

    async fn prove_once(&mut self, board: &mut IdentityReporter) {
        self.check_credential_file(board);
        let mut refused = false;
        if self.parts.clock.monotonic() >= self.token_backoff.until {
            let mut token = self.prove_token().await;
            if self.holds_token() {
                token = token.map_err(ProofError::as_inconclusive_if_throttled);
            }
            refused =
                token.as_ref().is_err_and(|trouble| trouble.kind == ProofErrorKind::Definitive);
            self.record_hop(board, Hop::EntraToken, token);
        } else if !self.holds_token() {
            self.record_missing_token(board);
        }
        let held = self.holds_token();
        if held && self.is_call_due() {
            self.make_granted_call(board).await;
        } else if !held && refused {
            // What a call came to before says nothing about one that cannot be made.
            board.identity.clear_hop(Hop::Granted);
        }
        self.record_lapse();
    }

    /// Who leaves Entra alone finds out nothing; but that there is no token any more is known, and
    /// that it is because of what Entra said last.
    fn record_missing_token(&self, board: &mut IdentityReporter) {
        if let Some(trouble) = self.token_backoff.last_error.clone() {
            let now = board.now();
            board.identity.record_hop(
                Hop::EntraToken,
                Err(trouble.as_transient_if_throttled()),
                now,
            );
        }
    }

    fn check_credential_file(&mut self, board: &mut IdentityReporter) {
        let generation = self.followed_credential.credential.generation().number();
        self.parts.metrics.record_rotations(generation.saturating_sub(self.counted_generation));
        self.counted_generation = self.counted_generation.max(generation);
        board.identity.set_credential(self.followed_credential.loaded_credential());
        let trouble = self.followed_credential.file_error();
        self.record_hop(board, Hop::Credential, trouble.map_or(Ok(()), Err));
    }

    /// Asks Entra for a new token where that is due, and else for one that may be held already.
    async fn prove_token(&mut self) -> Result<(), ProofError> {
        let now = self.parts.clock.monotonic();
        let generation = self.followed_credential.credential.generation().number();
        let is_due = self.proven_generation != Some(generation) || now >= self.token_due;
        let credential = &self.followed_credential.credential;
        let asked = if is_due {
            let asking = credential.renew_token(&self.scope);
            let outcome = with_timeout(&self.parts.clock, TOKEN_TIMEOUT, asking).await;
            outcome.map(|it| it.map_err(|error| ProofError::of_token(&error)))
        } else {
            let scope = [self.scope.as_str()];
            let asking = credential.get_token(&scope, None);
            let outcome = with_timeout(&self.parts.clock, TOKEN_TIMEOUT, asking).await;
            outcome.map(|it| it.map(drop).map_err(|error| ProofError::of_token_request(&error)))
        };
        asked.unwrap_or_else(|| Err(ProofError::timed_out("Entra", TOKEN_TIMEOUT)))?;
        if is_due {
            self.proven_generation = Some(generation);
            self.token_due = now.saturating_add(with_jitter(self.token_interval, fastrand::f64()));
        }
        self.key_refusal().map_or(Ok(()), Err)
    }

    /// Entra may have issued the token to an older key, because it refuses the one in the file.
    fn key_refusal(&self) -> Option<ProofError> {
        let KeyHealth::Refused { error, .. } = self.followed_credential.credential.health().key
        else {
            return None;
        };
        let message = format!(
            "Entra refuses the newest certificate, and an older one serves: {}",
            error.text
        );
        let hint = error.hint.unwrap_or_else(|| "rotate the credential once more".to_owned());
        Some(ProofError::new(ProofErrorKind::Definitive, &error.code, message, hint))
    }

    fn holds_token(&self) -> bool {
        self.followed_credential.credential.with_cached_token(&self.scope, |_| ()).is_some()
    }

    fn is_call_due(&self) -> bool {
        self.call.is_some() && self.parts.clock.monotonic() >= self.call_backoff.until
    }

    async fn make_granted_call(&mut self, board: &mut IdentityReporter) {
        let Some(call) = &self.call else { return };
        let made =
            with_timeout(&self.parts.clock, CALL_TIMEOUT, call.send_request(&self.caller)).await;
        let called = made.map_or_else(
            || CallOutcome::timed_out(ProofError::timed_out(&call.describe_target(), CALL_TIMEOUT)),
            CallOutcome::from_result,
        );
        self.parts.metrics.record_call(called.result);
        match called.result {
            // A token that is not taken is replaced, whatever its age.
            CallResult::Unauthenticated => {
                self.token_due = Duration::ZERO;
                self.parts.metrics.record_token_acceptance(false);
            }
            CallResult::Granted | CallResult::Refused => {
                self.parts.metrics.record_token_acceptance(true)
            }
            _ => {}
        }
        let hop = match called.result {
            CallResult::NoToken => Hop::EntraToken,
            _ => Hop::Granted,
        };
        self.record_hop(board, hop, called.outcome);
    }

    fn record_hop(
        &mut self,
        board: &mut IdentityReporter,
        hop: Hop,
        outcome: Result<(), ProofError>,
    ) {
        let now = self.parts.clock.monotonic();
        match hop {
            Hop::EntraToken => self.token_backoff.update(&outcome, now),
            Hop::Granted => self.call_backoff.update(&outcome, now),
            _ => {}
        }
        if let Err(trouble) = &outcome {
            self.parts.metrics.record_hop_failure(hop);
            tracing::debug!(%hop, code = trouble.code, "{}", trouble.message);
        }
        let now = board.now();
        board.identity.record_hop(hop, outcome, now);
    }

    fn record_lapse(&mut self) {
        let is_authenticated = self.parts.metrics.is_authenticated();
        if self.was_authenticated && !is_authenticated {
            self.parts.metrics.record_lapse();
        }
        self.was_authenticated = is_authenticated;
    }
}

/// How long somebody who throttles is left alone: ever longer, for who comes back as soon as it may
/// is throttled on.
#[derive(Debug, Default)]
struct ThrottleBackoff {
    until: Duration,
    /// How often in a row it throttled.
    throttled_count: u32,
    /// What it said last.
    last_error: Option<ProofError>,
}

impl ThrottleBackoff {
    fn update(&mut self, outcome: &Result<(), ProofError>, now: Duration) {
        let times = self.throttled_count.saturating_add(1);
        let trouble = outcome.as_ref().err();
        if let Some(pause) = trouble.and_then(|trouble| trouble.throttle_delay(times)) {
            *self = Self {
                until: now.saturating_add(pause),
                throttled_count: times,
                last_error: trouble.cloned(),
            };
        } else {
            (self.throttled_count, self.last_error) = (0, None);
        }
    }
}

/// How long a round waits for a token. The request goes on, and the next round finds its outcome.
const TOKEN_TIMEOUT: Duration = Duration::from_mins(1);
/// How long it waits for the answer to the call.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
