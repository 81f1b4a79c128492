//! Starts, changes and stops an emulator.

use lanyard_clock::ErrorHint;
use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use lanyard_clock::{SharedClock, SystemClock};
use lanyard_emulator_core::authority::{AuthorityError, LocalAuthority};
use lanyard_emulator_core::engine::{EmulatorEngine, State};
use lanyard_emulator_core::request_log::RequestLogEntry;
use lanyard_emulator_core::server::{ConnectionContext, MAX_CONNECTIONS, serve};
use lanyard_emulator_core::snapshot::StateSnapshot;
use lanyard_emulator_core::state_store::{StateStore, StateStoreError};
use lanyard_emulator_state::azure_clouds::{AzureClouds, EmulatedCloud};
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::cloud_domain::CloudDomain;
use lanyard_emulator_state::drill::FaultDrill;
use lanyard_emulator_state::fault_rules::FaultRule;
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::keys::RedactedText;
use lanyard_emulator_state::settings::{EmulatorSettings, SettingsChange};
use lanyard_emulator_state::token_policy::TokenPolicy;
use lanyard_vocabulary::Component;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::drills::{DrillError, start_drill};
use crate::seed;
use crate::seed::SeedError;
use crate::seed::credential::IssuedCredential;
use crate::seed::plan::SeedPlan;
use crate::seed::test_credentials::TestCredentials;
use crate::services::services;
use crate::state_change_error::StateChangeError;

/// Configures an emulator, which [`EmulatorBuilder::start`] starts.
#[derive(Debug)]
pub struct EmulatorBuilder {
    clock: SharedClock,
    listen: SocketAddr,
    allow_remote: bool,
    state_dir: Option<PathBuf>,
    plan: Option<SeedMode>,
    token_policy: TokenPolicy,
    id_generator: IdGenerator,
    authority: Option<ProvidedAuthority>,
    cloud_domain: Option<CloudDomain>,
    automatic_sign_in: bool,
    /// Settings, fault rules and a drill that apply from the start, also to an existing state.
    scenario: Scenario,
    snapshot: Option<StateSnapshot>,
    stopped_at: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct Scenario {
    settings: Vec<SettingsChange>,
    fault_rules: Vec<FaultRule>,
    fault_drill: Option<FaultDrill>,
}

impl Scenario {
    fn apply(
        self,
        azure: &mut AzureState,
        ids: &mut IdGenerator,
        now: Timestamp,
    ) -> Result<(), DrillError> {
        for change in self.settings {
            let changed = change.applied_to(&EmulatorSettings::of_state(azure))?;
            services().check_settings(changed)?.store(azure);
        }
        for rule in self.fault_rules {
            azure.faults.insert(rule.with_resolved_end(now)?);
        }
        let running = azure.running_drill.as_ref();
        match self.fault_drill {
            // A stored state still runs its drill.
            Some(wanted) if running.is_some_and(|running| running.is_named(wanted.name())) => {
                Ok(())
            }
            Some(fault_drill) => start_drill(services(), azure, ids, fault_drill, now),
            None => Ok(()),
        }
    }
}

/// The caller's certificate authority, in PEM.
#[derive(Debug)]
struct ProvidedAuthority {
    certificate: String,
    key: RedactedText,
}

/// A seed plan, and how an existing state is treated.
#[derive(Debug)]
enum SeedMode {
    /// An existing state must have been created from the same plan.
    RequireSamePlan(SeedPlan),
    /// An existing state is kept, whatever its plan.
    SeedOnlyIfNew(SeedPlan),
}

impl SeedMode {
    const fn plan(&self) -> &SeedPlan {
        match self {
            Self::RequireSamePlan(plan) | Self::SeedOnlyIfNew(plan) => plan,
        }
    }
}

/// An emulator could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address is reachable from other machines.
    #[error("`{address}` can be reached from other machines")]
    AddressReachableRemotely {
        /// The requested address.
        address: SocketAddr,
    },
    /// The port could not be opened.
    #[error("`{address}` could not be opened")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// The local certificate authority could not be created or loaded.
    #[error("the local certificate authority is not usable")]
    Authority(#[from] AuthorityError),
    /// TLS could not be set up.
    #[error("TLS could not be set up")]
    Tls(#[from] rustls::Error),
    /// The state directory cannot be used.
    #[error("the state directory is not usable")]
    Store(#[from] StateStoreError),
    /// The state directory contains a state from another plan.
    #[error(
        "the state directory `{directory}` contains a state that was created from another plan"
    )]
    SeedPlanMismatch {
        /// The path of the directory.
        directory: PathBuf,
    },
    /// The state could not be created from the plan.
    #[error("the Azure state could not be created")]
    Seed(#[from] SeedError),
    /// The settings, a fault rule or the drill could not be applied.
    #[error("the settings, fault rules or drill could not be applied: {0}")]
    Scenario(#[from] DrillError),
    /// The runtime shut down during the start.
    #[error("the runtime shut down while the Azure state was created")]
    Interrupted(#[source] tokio::task::JoinError),
}

impl ErrorHint for StartError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            Self::AddressReachableRemotely { .. } => Some(
                "listen on a loopback address, or allow other machines explicitly: any \
                 client of the port can obtain tokens of the emulator",
            ),
            Self::Listen { .. } => Some("choose another port, or port 0 for a free one"),
            Self::Store(error) => return error.hint(),
            Self::SeedPlanMismatch { .. } => Some(
                "use another directory, or give no plan (leave out -f) to continue with the \
                 state that is there",
            ),
            Self::Authority(error) => return error.hint(),
            Self::Seed(error) => return error.hint(),
            Self::Scenario(DrillError::AlreadyRunning(_)) => Some(
                "start the local Azure without a drill, and stop the running drill with \
                 `lanyard azure drill stop`",
            ),
            _ => None,
        };
        hint.map(Cow::Borrowed)
    }
}

impl StartError {
    /// Whether the seed plan, the settings, a fault rule or the drill caused the error, and not the
    /// machine: the plan is invalid, or an existing state was created from another plan.
    pub const fn is_invalid_plan(&self) -> bool {
        matches!(
            self,
            Self::SeedPlanMismatch { .. } | Self::Seed(SeedError::Plan { .. }) | Self::Scenario(_)
        )
    }

    /// Whether the caller's certificate authority is invalid.
    pub const fn is_invalid_authority(&self) -> bool {
        match self {
            Self::Authority(error) => error.is_invalid_input(),
            _ => false,
        }
    }
}

impl EmulatorBuilder {
    /// Sets the emulator's clock; defaults to the system clock.
    #[must_use]
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the listen address; defaults to a free port of 127.0.0.1.
    #[must_use]
    pub const fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Allows a listen address that other machines can reach.
    #[must_use]
    pub const fn allow_remote(mut self, allow: bool) -> Self {
        self.allow_remote = allow;
        self
    }

    /// Persists the state in a directory. Without it, the state is in memory only.
    #[must_use]
    pub fn state_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(directory.into());
        self
    }

    /// Sets the seed plan of a new state. A state in the state directory is kept if it was created from the
    /// same plan; otherwise the start fails.
    #[must_use]
    pub fn seed(mut self, plan: SeedPlan) -> Self {
        self.plan = Some(SeedMode::RequireSamePlan(plan));
        self
    }

    /// Like [`EmulatorBuilder::seed`], but keeps any state in the state directory.
    #[must_use]
    pub fn seed_if_new(mut self, plan: SeedPlan) -> Self {
        self.plan = Some(SeedMode::SeedOnlyIfNew(plan));
        self
    }

    /// Sets the token lifetimes of a new state. An existing state keeps its own.
    #[must_use]
    pub const fn token_policy(mut self, policy: TokenPolicy) -> Self {
        self.token_policy = policy;
        self
    }

    /// Makes ids reproducible: two emulators with the same namespace and the same sequence of operations
    /// create the same ids and the same private keys.
    ///
    /// The keys are public: the namespace is enough to compute them. The certificate authority is always
    /// random, because clients trust it.
    #[must_use]
    pub fn id_namespace(mut self, namespace: Uuid) -> Self {
        self.id_generator = IdGenerator::seeded(namespace);
        self
    }

    /// Like [`EmulatorBuilder::id_namespace`], with a namespace that is derived from a text. The credentials of
    /// the seeded test clients depend on the text only.
    #[must_use]
    pub fn id_seed(self, text: &str) -> Self {
        self.id_namespace(Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()))
    }

    /// Starts a new state with a snapshot instead of a seed plan. An existing state of the state directory is
    /// kept.
    #[must_use]
    pub fn snapshot(mut self, snapshot: StateSnapshot) -> Self {
        self.snapshot = Some(snapshot);
        self
    }

    /// Stops the clock of a new state at a time, so that two runs with the same seed also have the same times.
    /// The control API can advance and resume it.
    #[must_use]
    pub const fn stop_clock_at(mut self, time: Timestamp) -> Self {
        self.stopped_at = Some(time);
        self
    }

    /// Signs the seeded administrator in at the authorization endpoint and in the device code flow without
    /// interaction, for unattended runs.
    #[must_use]
    pub const fn automatic_sign_in(mut self, automatic: bool) -> Self {
        self.automatic_sign_in = automatic;
        self
    }

    /// Changes settings, also in an existing state.
    #[must_use]
    pub fn settings(mut self, change: SettingsChange) -> Self {
        self.scenario.settings.push(change);
        self
    }

    /// Adds a fault rule, also in an existing state.
    #[must_use]
    pub fn fault_rule(mut self, rule: FaultRule) -> Self {
        self.scenario.fault_rules.push(rule);
        self
    }

    /// Starts a drill, also in an existing state. If the state runs the drill already, that one continues; if it
    /// runs another drill, the start fails.
    #[must_use]
    pub fn fault_drill(mut self, fault_drill: FaultDrill) -> Self {
        self.scenario.fault_drill = Some(fault_drill);
        self
    }

    /// Signs the certificates of Azure names with this authority instead of a generated one or the one in the
    /// state directory. Both parameters are PEM.
    ///
    /// A generated authority is constrained to names of Azure. The constraints of this one are up to the
    /// caller.
    #[must_use]
    pub fn certificate_authority(mut self, certificate: String, key: String) -> Self {
        self.authority = Some(ProvidedAuthority { certificate, key: RedactedText::new(key) });
        self
    }

    /// Also serves a custom cloud, `AzureStackCloud`, under names below a domain, such as
    /// `management.azure.test`. Clients connect to the port directly, without a proxy, and have to resolve the
    /// names to its address.
    #[must_use]
    pub fn cloud_domain(mut self, domain: CloudDomain) -> Self {
        self.cloud_domain = Some(domain);
        self
    }

    /// Starts the emulator. The port accepts connections when this returns.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is not allowed or in use, or if the state cannot be created or loaded.
    pub async fn start(self) -> Result<Emulator, StartError> {
        let address = self.listen;
        if !self.allow_remote && !address.ip().is_loopback() {
            return Err(StartError::AddressReachableRemotely { address });
        }
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| StartError::Listen { address, source })?;
        let address =
            listener.local_addr().map_err(|source| StartError::Listen { address, source })?;
        let remote = self.allow_remote;
        let engine = tokio::task::spawn_blocking(move || self.build_engine(address.port()))
            .await
            .map_err(StartError::Interrupted)??;
        Emulator::serve_on_listener(engine, listener, address, remote)
    }

    /// The slow part of a start, which creates keys and reads files.
    fn build_engine(self, port: u16) -> Result<EmulatorEngine, StartError> {
        let clouds = AzureClouds::new(self.cloud_domain.as_ref(), port);
        let store = self.state_dir.as_deref().map(StateStore::open).transpose()?;
        let saved = store.as_ref().map(StateStore::load).transpose()?.flatten();
        let stored_authority = saved.as_ref().map(|saved| saved.authority.clone());
        let given = self
            .authority
            .map(|given| LocalAuthority::from_pem(given.certificate, given.key))
            .transpose()?;
        let (authority, mut azure, mut ids) = if let Some(saved) = saved {
            if let Some(SeedMode::RequireSamePlan(plan)) = &self.plan
                && saved.azure.plan.as_ref() != Some(&plan.fingerprint()?)
            {
                let directory = self.state_dir.unwrap_or_default();
                return Err(StartError::SeedPlanMismatch { directory });
            }
            let authority = match given {
                Some(given) => given,
                None => LocalAuthority::from_stored(saved.authority)?.extended_to(&clouds)?,
            };
            (authority, saved.azure, saved.ids)
        } else if let Some(StateSnapshot { azure, ids }) = self.snapshot {
            (given.map_or_else(|| LocalAuthority::generate(&clouds), Ok)?, azure, ids)
        } else {
            let mut ids = self.id_generator;
            let mut azure =
                AzureState { tokens: self.token_policy.into(), ..AzureState::default() };
            if let Some(time) = self.stopped_at {
                azure.clock = azure.clock.stop_at(time).into();
            }
            let now = azure.clock.emulated_time(self.clock.now());
            if let Some(plan) = self.plan.as_ref().map(SeedMode::plan) {
                azure.plan = Some(plan.fingerprint()?).into();
                seed::apply_plan(plan, &mut azure, &mut ids, now)?;
                seed::add_nodes(&mut azure.imds, plan, &mut ids);
            }
            azure.imds.identity_header = Some(RedactedText::new(ids.next_hex32()));
            (given.map_or_else(|| LocalAuthority::generate(&clouds), Ok)?, azure, ids)
        };
        if self.automatic_sign_in {
            let administrator = azure.registry.test_clients.as_ref();
            azure.sign_ins.settings.automatic_user = administrator.map(|it| it.user_object_id);
        }
        let now = azure.clock.emulated_time(self.clock.now());
        self.scenario.apply(&mut azure, &mut ids, now)?;
        let writer = store.map(StateStore::into_writer).transpose()?;
        let engine = EmulatorEngine::new(
            self.clock,
            Arc::new(authority),
            clouds,
            services(),
            State::new(azure, ids),
            writer,
        );
        // A restart without changes writes nothing, and so does not wait for the disk.
        if stored_authority.as_ref() == Some(engine.authority.stored_form()) {
            engine.save_changes()?;
        } else {
            engine.save_all()?;
        }
        Ok(engine)
    }
}

/// A running emulator. Dropping it stops it; [`Emulator::shutdown`] completes requests in flight first.
#[derive(Debug)]
pub struct Emulator {
    engine: Arc<EmulatorEngine>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
}

impl Emulator {
    /// Creates a builder with a free port of 127.0.0.1, an empty state in memory and the system clock.
    pub fn builder() -> EmulatorBuilder {
        EmulatorBuilder {
            clock: SystemClock::shared(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            allow_remote: false,
            state_dir: None,
            plan: None,
            token_policy: TokenPolicy::default(),
            id_generator: IdGenerator::Random,
            authority: None,
            cloud_domain: None,
            automatic_sign_in: false,
            scenario: Scenario::default(),
            snapshot: None,
            stopped_at: None,
        }
    }

    fn serve_on_listener(
        engine: EmulatorEngine,
        listener: TcpListener,
        address: SocketAddr,
        remote: bool,
    ) -> Result<Self, StartError> {
        engine.set_local_url(connectable_url(address));
        let engine = Arc::new(engine);
        let gate = ConnectionContext::new(Arc::clone(&engine), remote)?;
        let (stop, stopped) = watch::channel(false);
        let clock = SystemClock::shared();
        let task = tokio::spawn(serve(listener, gate, clock, MAX_CONNECTIONS, stopped));
        Ok(Self { engine, address, stop, task: Some(task) })
    }

    /// The listen address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The value for `HTTPS_PROXY` and `AZURE_POD_IDENTITY_AUTHORITY_HOST` of clients on this machine.
    pub fn proxy_url(&self) -> String {
        connectable_url(self.address)
    }

    /// The URL of Azure Resource Manager in the custom cloud, without a trailing slash. `None` if
    /// the emulator was built without [`EmulatorBuilder::cloud_domain`].
    pub fn custom_cloud_url(&self) -> Option<String> {
        self.engine.clouds.custom().map(EmulatedCloud::arm_url)
    }

    /// The CA certificate that clients must trust, in PEM.
    pub fn ca_pem(&self) -> &str {
        self.engine.authority.certificate_pem()
    }

    /// The recorded requests, oldest first.
    pub fn request_log(&self) -> Vec<RequestLogEntry> {
        self.engine.request_log().entries_after(0).cloned().collect()
    }

    /// The credentials of the seeded administrator and test client; `None` if the state was created without
    /// test clients.
    pub fn test_credentials(&self) -> Option<TestCredentials> {
        self.engine.state().azure.registry.test_clients.as_ref().map(TestCredentials::from)
    }

    /// Rotates the credential of a component: creates a new key and certificate, and stores them as a new
    /// version of its vault secret, with `padding` extra bytes in the document.
    ///
    /// # Errors
    ///
    /// Returns an error if the component has no identity, or if the document exceeds the size of a vault
    /// secret (25 KB).
    pub async fn rotate_credential(
        &self,
        component: Component,
        padding: usize,
    ) -> Result<IssuedCredential, StateChangeError> {
        self.update_azure_state(move |azure, ids, now| {
            seed::renew_credential(azure, component, ids, now, padding)
        })
        .await
    }

    /// Copies the complete state. The copy contains secrets and private keys.
    pub fn snapshot(&self) -> StateSnapshot {
        self.engine.snapshot()
    }

    /// Replaces the complete state, also in the state directory. Requests in flight see the old state or the
    /// new one.
    ///
    /// # Errors
    ///
    /// Returns an error if the state cannot be written to the state directory.
    pub async fn restore(&self, snapshot: StateSnapshot) -> Result<(), StateChangeError> {
        let engine = Arc::clone(&self.engine);
        tokio::task::spawn_blocking(move || engine.restore_snapshot(snapshot))
            .await
            .map_err(StateChangeError::Interrupted)??;
        Ok(())
    }

    /// Changes the state on a blocking thread, because changes create keys and write files.
    async fn update_azure_state<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut AzureState, &mut IdGenerator, Timestamp) -> Result<T, SeedError>
        + Send
        + 'static,
    ) -> Result<T, StateChangeError> {
        let engine = Arc::clone(&self.engine);
        let change = |azure: &mut AzureState, ids: &mut IdGenerator, now| {
            change(azure, ids, now).map_err(StateChangeError::from)
        };
        tokio::task::spawn_blocking(move || engine.update_azure_state(change))
            .await
            .map_err(StateChangeError::Interrupted)?
    }

    /// Stops the emulator: closes the port, and waits up to five seconds for requests in flight.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::debug!(%error, "the listener ended early");
        }
    }
}

/// Returns the URL at which clients on this machine reach a listener.
fn connectable_url(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("http://{address}")
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests;
