//! From a request to its reply: site, fault, operation, headers, ledger, state file.

use std::time::Duration;

use http::{Method, StatusCode};
use jiff::Timestamp;
use lanyard_clock::SharedClock;
use lanyard_vocabulary::ClientId;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

use crate::authority::LocalAuthority;
use crate::call::{Call, Ids};
pub(crate) use crate::doors::Door;
use crate::doors::{site, tunnel_refusal};
use crate::emulator::ChangeError;
use crate::faults::{Effect, Hit};
use crate::hosts::Site;
use crate::ledger::{Ledger, LedgerEntry};
use crate::operations::{Lookup, Operation, Service, lookup};
use crate::request::{Reply, Request, Scheme};
use crate::seed::SeedError;
use crate::services;
use crate::store::{Store, StoreError};
use crate::world::World;

/// What goes back to the client.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The reply.
    pub(crate) reply: Reply,
    /// How long to hold it back.
    pub(crate) delay: Duration,
    /// Whether to end the connection instead.
    pub(crate) reset: bool,
}

/// What changes while the emulator runs.
#[derive(Debug)]
pub(crate) struct State {
    /// The world.
    pub(crate) world: World,
    /// The source of new ids.
    pub(crate) ids: Ids,
    /// The ledger.
    pub(crate) ledger: Ledger,
}

/// The emulator without its sockets.
#[derive(Debug)]
pub(crate) struct Engine {
    /// The clock of the world.
    pub(crate) clock: SharedClock,
    /// The local certificate authority.
    pub(crate) authority: std::sync::Arc<LocalAuthority>,
    state: Mutex<State>,
    store: Option<Store>,
}

/// What the ledger learns while a request is handled.
#[derive(Debug, Default)]
struct Trace {
    service: Option<Service>,
    operation: Option<&'static str>,
    caller: Option<ClientId>,
    missing: bool,
    fault: Option<String>,
}

impl Engine {
    /// An engine over a world.
    pub(crate) fn new(
        clock: SharedClock,
        authority: std::sync::Arc<LocalAuthority>,
        world: World,
        ids: Ids,
        store: Option<Store>,
    ) -> Self {
        let state = State { world, ids, ledger: Ledger::default() };
        Self { clock, authority, state: Mutex::new(state), store }
    }

    /// The state, for one short look or change.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether a mutation waits for a disk.
    pub(crate) const fn is_stored(&self) -> bool {
        self.store.is_some()
    }

    /// Writes the state file, if there is a state directory.
    pub(crate) fn save(&self) -> Result<(), StoreError> {
        let state = self.state.lock();
        self.write(&state.world, &state.ids)
    }

    /// Changes the world from inside the process, and writes it.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut World, &mut Ids, Timestamp) -> Result<T, SeedError>,
    ) -> Result<T, ChangeError> {
        let mut state = self.state.lock();
        let State { world, ids, .. } = &mut *state;
        let now = world.clock.at(self.clock.now());
        let changed = change(world, ids, now)?;
        self.write(world, ids)?;
        Ok(changed)
    }

    fn write(&self, world: &World, ids: &Ids) -> Result<(), StoreError> {
        let Some(store) = &self.store else { return Ok(()) };
        store.save(self.authority.stored(), ids, world)
    }

    /// Answers a request.
    pub(crate) fn answer(&self, request: &Request, door: Door) -> Answer {
        let began = self.clock.monotonic();
        let mut state = self.state.lock();
        let now = state.world.clock.at(self.clock.now());
        let mut trace = Trace::default();
        let (reply, delay, reset) = match site(request, door) {
            Ok(site) => self.at_site(&mut state, request, site, now, &mut trace),
            Err(refusal) => (refusal, Duration::ZERO, false),
        };
        let reply = finish(&mut state, request, &trace, reply, now);
        let elapsed = self.clock.monotonic().saturating_sub(began);
        state.ledger.write(entry(request, &trace, &reply, now, elapsed));
        Answer { reply, delay, reset }
    }

    /// Refuses a tunnel to a host that is not Azure's, or opens it (`None`).
    pub(crate) fn refuse_tunnel(&self, host: &str, port: u16) -> Option<Reply> {
        let refusal = tunnel_refusal(host, port)?;
        let request = Request {
            method: Method::CONNECT,
            scheme: Scheme::Http,
            host: host.to_owned(),
            path: String::new(),
            query: Vec::new(),
            headers: http::HeaderMap::new(),
            body: bytes::Bytes::new(),
        };
        Some(self.refuse(&request, refusal))
    }

    /// Records the refusal of a request that no service sees.
    pub(crate) fn refuse(&self, request: &Request, refusal: Reply) -> Reply {
        let mut state = self.state.lock();
        let now = state.world.clock.at(self.clock.now());
        let trace = Trace::default();
        let reply = finish(&mut state, request, &trace, refusal, now);
        state.ledger.write(entry(request, &trace, &reply, now, Duration::ZERO));
        reply
    }

    fn at_site(
        &self,
        state: &mut State,
        request: &Request,
        site: Site,
        now: Timestamp,
        trace: &mut Trace,
    ) -> (Reply, Duration, bool) {
        trace.service = Some(site.service);
        let hit = if state.world.faults.is_empty() {
            None
        } else {
            state.world.faults.strike(site.service, request, now)
        };
        let (mut delay, mut reset) = (Duration::ZERO, false);
        if let Some(Hit { rule, effect }) = hit {
            trace.fault = Some(rule);
            delay = effect.delay();
            reset = effect == Effect::Reset;
            let replacement = match effect {
                Effect::TokenError { code } => {
                    Some(services::entra::injected_error(code, now, &mut state.ids))
                }
                Effect::Reset => {
                    Some(Reply::empty(StatusCode::BAD_GATEWAY).because("connection reset"))
                }
                other => other.reply(site.service),
            };
            if let Some(reply) = replacement {
                return (reply, delay, reset);
            }
        }
        (self.operate(state, request, site, now, trace), delay, reset)
    }

    fn operate(
        &self,
        state: &mut State,
        request: &Request,
        site: Site,
        now: Timestamp,
        trace: &mut Trace,
    ) -> Reply {
        let segments: Vec<_> = request.segments().collect();
        let (operation, parameters) =
            match lookup(services::operations(site.service), &request.method, &segments) {
                Lookup::Known(operation, parameters) => (operation, parameters),
                Lookup::Unknown(nearest) => {
                    trace.missing = true;
                    return not_implemented(site.service, request, nearest);
                }
            };
        trace.operation = Some(operation.id);
        let State { world, ids, ledger } = state;
        let mut call = Call {
            request,
            site,
            now,
            machine_now: self.clock.now(),
            ids,
            parameters,
            caller: None,
            changed: false,
            world,
            ledger,
            authority: &self.authority,
        };
        let reply = (operation.handler)(&mut call).unwrap_or_else(|refusal| refusal);
        trace.caller = call.caller;
        let changed = call.changed;
        if changed && let Err(error) = self.write(world, ids) {
            // The change is in memory and not on the disk: the client must not rely on it.
            tracing::error!(%error, "the state could not be written");
            return failure(&format!("the state could not be written: {error}"));
        }
        reply
    }
}

/// The headers that every service sends.
fn finish(
    state: &mut State,
    request: &Request,
    trace: &Trace,
    mut reply: Reply,
    now: Timestamp,
) -> Reply {
    let id = state.ids.uuid().to_string();
    let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    reply = reply.with_header("date", date).with_header("x-ms-request-id", &id);
    if let Some(sent) = request.header("x-ms-client-request-id").filter(|id| id.len() <= 128) {
        reply = reply.with_header("x-ms-client-request-id", sent);
    }
    match trace.service {
        Some(Service::Arm) => {
            let correlation =
                request.header("x-ms-correlation-request-id").unwrap_or(&id).to_owned();
            let stamp = now.strftime("%Y%m%dT%H%M%SZ");
            reply
                .with_header("x-ms-routing-request-id", format!("LANYARD:{stamp}:{correlation}"))
                .with_header("x-ms-correlation-request-id", correlation)
                .with_header("cache-control", "no-cache")
        }
        Some(Service::Entra) => {
            let echoed = request.header("client-request-id").filter(|id| id.len() <= 128);
            if let Some(sent) = echoed {
                reply = reply.with_header("client-request-id", sent);
            }
            reply.with_header("cache-control", "no-store, no-cache")
        }
        Some(Service::KeyVault) => {
            let vault = state.world.vaults.at_host(&request.host);
            let region = vault.map_or("", |vault| vault.location.as_str()).to_owned();
            reply
                .with_header("x-ms-keyvault-region", region)
                .with_header("cache-control", "no-cache")
        }
        _ => reply,
    }
}

fn failure(message: &str) -> Reply {
    Reply::json(
        StatusCode::INTERNAL_SERVER_ERROR,
        &json!({ "error": { "code": "InternalServerError", "message": message } }),
    )
    .because("state not written")
}

/// The honest answer to an operation that does not exist here.
fn not_implemented(
    service: Service,
    request: &Request,
    nearest: Option<&'static Operation>,
) -> Reply {
    let (method, path) = (request.method.as_str(), &request.path);
    let hint = nearest.map_or_else(
        || format!("The emulator has no operation of `{}` that is near it.", service.name()),
        |row| format!("The nearest that it has is `{}` ({} {}).", row.id, row.method, row.path),
    );
    let message = format!(
        "The emulator does not implement `{method} {path}` of `{}`. {hint}",
        service.name()
    );
    let body = match service {
        Service::Entra | Service::Imds | Service::WebApp => {
            json!({ "error": "not_implemented", "error_description": message })
        }
        _ => json!({
            "error": {
                "code": "NotImplementedByEmulator",
                "message": message,
                "target": nearest.map(|row| row.id),
            }
        }),
    };
    Reply::json(StatusCode::NOT_IMPLEMENTED, &body).because("operation not implemented")
}

fn entry(
    request: &Request,
    trace: &Trace,
    reply: &Reply,
    now: Timestamp,
    elapsed: Duration,
) -> LedgerEntry {
    // A client can put anything here; only what looks like a version is kept.
    let version = request.query("api-version").filter(|text| {
        text.len() <= 32 && text.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
    });
    LedgerEntry {
        sequence: 0,
        time: now,
        service: trace.service.map(Service::name),
        operation: trace.operation,
        method: request.method.as_str().to_owned(),
        host: request.host.clone(),
        path: request.path.clone(),
        api_version: version.map(ToOwned::to_owned),
        status: reply.status.as_u16(),
        tls: request.scheme == Scheme::Https,
        caller: trace.caller,
        micros: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
        refusal: reply.reason.clone(),
        missing: trace.missing,
        fault: trace.fault.clone(),
    }
}
