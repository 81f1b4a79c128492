//! One round of proof: the file, a token, the granted call.

use std::time::Duration;

use azure_core::credentials::TokenCredential as _;
use lanyard_azure::Caller;
use lanyard_credential::KeyHealth;
use lanyard_vocabulary::Hop;
use tokio::sync::mpsc;

use super::prober::Probing;
use super::{Board, CanaryParts, CanarySettings};
use crate::cadence::jittered;
use crate::call::{Called, GrantedCall};
use crate::credential::Followed;
use crate::deadline::within;
use crate::metrics::CallResult;
use crate::trouble::{Nature, Trouble};

/// The rounds of a canary with an open credential file.
#[derive(Debug)]
pub(super) struct Rounds {
    scope: String,
    call: Option<GrantedCall>,
    interval: Duration,
    token_interval: Duration,
    parts: CanaryParts,
    followed: Followed,
    caller: Caller,
    /// The generation whose key Entra was asked with.
    proven: Option<u64>,
    /// When Entra is asked for a new token, whatever is held.
    token_due: Duration,
    /// How long Entra is left alone.
    token_rest: Rest,
    /// How long the service is left alone.
    call_rest: Rest,
    /// The newest generation that was counted.
    seen: u64,
    was_authenticated: bool,
}

impl Rounds {
    pub(super) fn new(settings: &CanarySettings, parts: CanaryParts, followed: Followed) -> Self {
        Self {
            scope: settings.scope(),
            call: settings.call.clone(),
            interval: settings.interval,
            token_interval: settings.token_interval,
            caller: settings.caller(&followed, &parts.transport),
            parts,
            seen: followed.credential.generation().number(),
            followed,
            proven: None,
            token_due: Duration::ZERO,
            token_rest: Rest::default(),
            call_rest: Rest::default(),
            was_authenticated: false,
        }
    }

    /// Makes a round every interval, and one after each rotation.
    pub(super) async fn run(mut self, board: &mut Board, mut probed: mpsc::Receiver<Probing>) {
        loop {
            self.followed.loads.mark_unchanged();
            self.make(board).await;
            board.publish();
            let mut pause = self.parts.clock.sleep(jittered(self.interval, fastrand::f64()));
            loop {
                tokio::select! {
                    () = &mut pause => break,
                    Ok(()) = self.followed.loads.changed() => break,
                    Some(probing) = probed.recv() => board.probed(probing),
                }
            }
        }
    }

    async fn make(&mut self, board: &mut Board) {
        self.look_at_file(board);
        let mut refused = false;
        if self.parts.clock.monotonic() >= self.token_rest.until {
            let mut token = self.prove_token().await;
            if self.holds_token() {
                token = token.map_err(Trouble::taking_nothing_back);
            }
            refused = token.as_ref().is_err_and(|trouble| trouble.nature == Nature::Final);
            self.note(board, Hop::EntraToken, token);
        } else if !self.holds_token() {
            self.go_without_token(board);
        }
        let held = self.holds_token();
        if held && self.is_call_due() {
            self.make_call(board).await;
        } else if !held && refused {
            // What a call came to before says nothing about one that cannot be made.
            board.identity.not_reached(Hop::Granted);
        }
        self.count_lapse();
    }

    /// Who leaves Entra alone finds out nothing; but that there is no token any more is known, and
    /// that it is because of what Entra said last.
    fn go_without_token(&self, board: &mut Board) {
        if let Some(trouble) = self.token_rest.why.clone() {
            let now = board.now();
            board.identity.walked(Hop::EntraToken, Err(trouble.without_token()), now);
        }
    }

    fn look_at_file(&mut self, board: &mut Board) {
        let generation = self.followed.credential.generation().number();
        self.parts.metrics.rotated(generation.saturating_sub(self.seen));
        self.seen = self.seen.max(generation);
        board.identity.loaded(self.followed.loaded());
        let trouble = self.followed.file_trouble();
        self.note(board, Hop::Credential, trouble.map_or(Ok(()), Err));
    }

    /// Asks Entra for a new token where that is due, and else for one that may be held already.
    async fn prove_token(&mut self) -> Result<(), Trouble> {
        let now = self.parts.clock.monotonic();
        let generation = self.followed.credential.generation().number();
        let is_due = self.proven != Some(generation) || now >= self.token_due;
        let credential = &self.followed.credential;
        let asked = if is_due {
            let asking = credential.renew_token(&self.scope);
            let outcome = within(&self.parts.clock, TOKEN_LIMIT, asking).await;
            outcome.map(|it| it.map_err(|error| Trouble::of_token(&error)))
        } else {
            let scope = [self.scope.as_str()];
            let asking = credential.get_token(&scope, None);
            let outcome = within(&self.parts.clock, TOKEN_LIMIT, asking).await;
            outcome.map(|it| it.map(drop).map_err(|error| Trouble::of_token_request(&error)))
        };
        asked.unwrap_or_else(|| Err(Trouble::of_silence("Entra", TOKEN_LIMIT)))?;
        if is_due {
            self.proven = Some(generation);
            self.token_due = now.saturating_add(jittered(self.token_interval, fastrand::f64()));
        }
        self.refused_key().map_or(Ok(()), Err)
    }

    /// Entra may have issued the token to an older key, because it refuses the one in the file.
    fn refused_key(&self) -> Option<Trouble> {
        let KeyHealth::Refused { error, .. } = self.followed.credential.health().key else {
            return None;
        };
        let message = format!(
            "Entra refuses the newest certificate, and an older one serves: {}",
            error.text
        );
        let hint = error.hint.unwrap_or_else(|| "rotate the credential once more".to_owned());
        Some(Trouble::new(Nature::Final, &error.code, message, hint))
    }

    fn holds_token(&self) -> bool {
        self.followed.credential.with_cached_token(&self.scope, |_| ()).is_some()
    }

    fn is_call_due(&self) -> bool {
        self.call.is_some() && self.parts.clock.monotonic() >= self.call_rest.until
    }

    async fn make_call(&mut self, board: &mut Board) {
        let Some(call) = &self.call else { return };
        let made = within(&self.parts.clock, CALL_LIMIT, call.make(&self.caller)).await;
        let called = made.map_or_else(
            || Called::silent(Trouble::of_silence(&call.target(), CALL_LIMIT)),
            Called::of,
        );
        self.parts.metrics.called(called.result);
        match called.result {
            // A token that is not taken is replaced, whatever its age.
            CallResult::Unauthenticated => {
                self.token_due = Duration::ZERO;
                self.parts.metrics.token_taken(false);
            }
            CallResult::Granted | CallResult::Refused => self.parts.metrics.token_taken(true),
            _ => {}
        }
        let hop = match called.result {
            CallResult::NoToken => Hop::EntraToken,
            _ => Hop::Granted,
        };
        self.note(board, hop, called.outcome);
    }

    fn note(&mut self, board: &mut Board, hop: Hop, outcome: Result<(), Trouble>) {
        let now = self.parts.clock.monotonic();
        match hop {
            Hop::EntraToken => self.token_rest.follow(&outcome, now),
            Hop::Granted => self.call_rest.follow(&outcome, now),
            _ => {}
        }
        if let Err(trouble) = &outcome {
            self.parts.metrics.failed(hop);
            tracing::debug!(%hop, code = trouble.code, "{}", trouble.message);
        }
        let now = board.now();
        board.identity.walked(hop, outcome, now);
    }

    fn count_lapse(&mut self) {
        let is_authenticated = self.parts.metrics.is_authenticated();
        if self.was_authenticated && !is_authenticated {
            self.parts.metrics.lapsed();
        }
        self.was_authenticated = is_authenticated;
    }
}

/// How long somebody who throttles is left alone: ever longer, for who comes back as soon as it may
/// is throttled on.
#[derive(Debug, Default)]
struct Rest {
    until: Duration,
    /// How often in a row it throttled.
    times: u32,
    /// What it said last.
    why: Option<Trouble>,
}

impl Rest {
    fn follow(&mut self, outcome: &Result<(), Trouble>, now: Duration) {
        let times = self.times.saturating_add(1);
        let trouble = outcome.as_ref().err();
        if let Some(pause) = trouble.and_then(|trouble| trouble.rest(times)) {
            *self = Self { until: now.saturating_add(pause), times, why: trouble.cloned() };
        } else {
            (self.times, self.why) = (0, None);
        }
    }
}

/// How long a round waits for a token. The request goes on, and the next round finds its outcome.
const TOKEN_LIMIT: Duration = Duration::from_mins(1);
/// How long it waits for the answer to the call.
const CALL_LIMIT: Duration = Duration::from_secs(30);
