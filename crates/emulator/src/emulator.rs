//! Starting, reaching and stopping an emulator.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use lanyard_clock::{SharedClock, SystemClock};
use lanyard_vocabulary::Component;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::authority::{AuthorityError, LocalAuthority};
use crate::call::Ids;
use crate::drill::{Drill, apply_drill};
use crate::engine::Engine;
use crate::keys::SecretText;
use crate::ledger::LedgerEntry;
use crate::seed::{self, Issued as IssuedCredential, SeedError, WorldPlan};
use crate::server::{CONNECTIONS, Gate, serve};
use crate::services::imds::Machine;
use crate::store::{Store, StoreError};
use crate::token::TokenPolicy;
use crate::world::World;

/// How an emulator shall start. Nothing happens before [`Builder::start`].
#[derive(Debug)]
pub struct Builder {
    clock: SharedClock,
    listen: SocketAddr,
    allow_remote: bool,
    state_dir: Option<PathBuf>,
    plan: Option<Seeding>,
    tokens: TokenPolicy,
    ids: Ids,
    authority: Option<GivenAuthority>,
}

/// A certificate authority that the caller provides, both PEM.
#[derive(Debug)]
struct GivenAuthority {
    certificate: String,
    key: SecretText,
}

/// A plan, and what it means to a world that is there.
#[derive(Debug)]
enum Seeding {
    /// The world has to come from this very plan.
    Exactly(WorldPlan),
    /// The plan is for a new world; another one is kept.
    IfNew(WorldPlan),
}

impl Seeding {
    const fn plan(&self) -> &WorldPlan {
        match self {
            Self::Exactly(plan) | Self::IfNew(plan) => plan,
        }
    }
}

/// The emulator did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address can be reached from other machines.
    #[error("`{address}` can be reached from other machines")]
    Remote {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// The port could not be opened.
    #[error("`{address}` could not be opened")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The local certificate authority could not be made or read.
    #[error("the local certificate authority is not usable")]
    Authority(#[from] AuthorityError),
    /// TLS could not be set up.
    #[error("TLS could not be set up")]
    Tls(#[from] rustls::Error),
    /// The state directory is not usable.
    #[error("the state directory is not usable")]
    Store(#[from] StoreError),
    /// The state directory holds a world that another plan made.
    #[error("the state directory `{directory}` holds a world that was made from another plan")]
    OtherWorld {
        /// The directory.
        directory: PathBuf,
    },
    /// The world could not be made.
    #[error("the world could not be made")]
    Seed(#[from] SeedError),
    /// The runtime ended while the world was made.
    #[error("the runtime ended while the world was made")]
    Interrupted(#[source] tokio::task::JoinError),
}

impl StartError {
    /// What to do about it.
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Remote { .. } => Some(
                "listen on a loopback address, or allow other machines explicitly: whoever \
                 reaches the port can obtain tokens of this world",
            ),
            Self::Listen { .. } => Some("choose another port, or port 0 for a free one"),
            Self::Store(error) => Some(error.hint()),
            Self::OtherWorld { .. } => Some(
                "use another directory, or give no plan (leave out -f) to continue with the \
                 world that is there",
            ),
            Self::Authority(error) => error.hint(),
            Self::Seed(error) => error.hint(),
            _ => None,
        }
    }

    /// Whether the input is at fault and not the machine: the plan contradicts itself, or is not
    /// that of the saved world.
    pub const fn is_invalid_plan(&self) -> bool {
        matches!(self, Self::OtherWorld { .. } | Self::Seed(SeedError::Plan { .. }))
    }

    /// Whether the certificate authority that was given is at fault.
    pub const fn is_invalid_authority(&self) -> bool {
        match self {
            Self::Authority(error) => error.is_invalid_input(),
            _ => false,
        }
    }
}

impl Builder {
    /// The clock of the world; without it, the system's.
    #[must_use]
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// The address to listen on; without it, a free port of 127.0.0.1.
    #[must_use]
    pub const fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Allows an address that other machines can reach.
    #[must_use]
    pub const fn allow_remote(mut self, allow: bool) -> Self {
        self.allow_remote = allow;
        self
    }

    /// Keeps the world in a directory, where a restart finds it. Without it, the world is in
    /// memory only.
    #[must_use]
    pub fn state_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(directory.into());
        self
    }

    /// What the world contains at first. A world that the state directory holds is kept as it is
    /// if it was made from the same plan, and is refused otherwise.
    #[must_use]
    pub fn seed(mut self, plan: WorldPlan) -> Self {
        self.plan = Some(Seeding::Exactly(plan));
        self
    }

    /// As [`Builder::seed`], but a world that the state directory holds is kept whatever made it.
    #[must_use]
    pub fn seed_if_new(mut self, plan: WorldPlan) -> Self {
        self.plan = Some(Seeding::IfNew(plan));
        self
    }

    /// How long the tokens of a new world live.
    #[must_use]
    pub const fn tokens(mut self, policy: TokenPolicy) -> Self {
        self.tokens = policy;
        self
    }

    /// Makes ids repeatable: two worlds of one namespace that do the same have the same ids. Keys
    /// are random all the same.
    #[must_use]
    pub const fn ids(mut self, namespace: Uuid) -> Self {
        self.ids = Ids::Seeded { namespace, count: 0 };
        self
    }

    /// Signs the certificates of the Azure names with this authority, instead of a generated one or
    /// the one of the state directory. Both parameters are PEM.
    ///
    /// A generated authority is constrained to the names of Azure. This one is what the caller
    /// made it.
    #[must_use]
    pub fn certificate_authority(mut self, certificate: String, key: String) -> Self {
        self.authority = Some(GivenAuthority { certificate, key: SecretText::new(key) });
        self
    }

    /// Starts the emulator: once this returns, the port answers.
    ///
    /// # Errors
    /// If the address is refused or taken, or the world cannot be made or read.
    pub async fn start(self) -> Result<Emulator, StartError> {
        let address = self.listen;
        if !self.allow_remote && !address.ip().is_loopback() {
            return Err(StartError::Remote { address });
        }
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| StartError::Listen { address, source })?;
        let address =
            listener.local_addr().map_err(|source| StartError::Listen { address, source })?;
        let remote = self.allow_remote;
        let engine = tokio::task::spawn_blocking(move || self.build())
            .await
            .map_err(StartError::Interrupted)??;
        Emulator::over(engine, listener, address, remote)
    }

    /// The slow part of a start: keys and files.
    fn build(self) -> Result<Engine, StartError> {
        let store = self.state_dir.as_deref().map(Store::open).transpose()?;
        let saved = store.as_ref().map(Store::load).transpose()?.flatten();
        let is_changed = saved.is_none() || self.authority.is_some();
        let given = self
            .authority
            .map(|given| LocalAuthority::from_pem(given.certificate, given.key))
            .transpose()?;
        let (authority, world, ids) = if let Some(saved) = saved {
            if let Some(Seeding::Exactly(plan)) = &self.plan
                && saved.world.plan.as_ref() != Some(&plan.fingerprint()?)
            {
                let directory = self.state_dir.unwrap_or_default();
                return Err(StartError::OtherWorld { directory });
            }
            let authority = match given {
                Some(given) => given,
                None => LocalAuthority::from_stored(saved.authority)?,
            };
            (authority, saved.world, saved.ids)
        } else {
            let mut ids = self.ids;
            let mut world = World { tokens: self.tokens, ..World::default() };
            if let Some(plan) = self.plan.as_ref().map(Seeding::plan) {
                world.plan = Some(plan.fingerprint()?);
                seed::apply_plan(plan, &mut world, &mut ids, self.clock.now())?;
                world.imds.machine = Machine::of(plan, &mut ids);
            }
            world.imds.identity_header = Some(SecretText::new(ids.hex32()));
            (given.map_or_else(LocalAuthority::generate, Ok)?, world, ids)
        };
        let engine = Engine::new(self.clock, Arc::new(authority), world, ids, store);
        if is_changed {
            engine.save()?;
        }
        Ok(engine)
    }
}

/// The world was not changed, or the change was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The world refuses the change.
    #[error("the world refuses the change")]
    Refused(#[from] SeedError),
    /// The change is in memory and could not be written.
    #[error("the changed world could not be written")]
    Store(#[from] StoreError),
    /// The runtime ended while the world was changed.
    #[error("the runtime ended while the world was changed")]
    Interrupted(#[source] tokio::task::JoinError),
}

impl ChangeError {
    /// What to do about it.
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Refused(error) => error.hint(),
            Self::Store(error) => Some(error.hint()),
            Self::Interrupted(_) => None,
        }
    }
}

/// A running emulator. It stops when this is dropped; [`Emulator::shutdown`] lets the requests in
/// flight finish first.
#[derive(Debug)]
pub struct Emulator {
    engine: Arc<Engine>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
}

impl Emulator {
    /// An emulator with a free port of 127.0.0.1, an empty world in memory and the system clock.
    pub fn builder() -> Builder {
        Builder {
            clock: SystemClock::shared(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            allow_remote: false,
            state_dir: None,
            plan: None,
            tokens: TokenPolicy::default(),
            ids: Ids::Random,
            authority: None,
        }
    }

    fn over(
        engine: Engine,
        listener: TcpListener,
        address: SocketAddr,
        remote: bool,
    ) -> Result<Self, StartError> {
        let engine = Arc::new(engine);
        let gate = Gate::new(Arc::clone(&engine), remote)?;
        let (stop, stopped) = watch::channel(false);
        let clock = SystemClock::shared();
        let task = tokio::spawn(serve(listener, gate, clock, CONNECTIONS, stopped));
        Ok(Self { engine, address, stop, task: Some(task) })
    }

    /// The address that it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What clients on this machine set `HTTPS_PROXY` to, and `AZURE_POD_IDENTITY_AUTHORITY_HOST`.
    pub fn proxy_url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        format!("http://{address}")
    }

    /// The certificate that clients have to trust, PEM.
    pub fn ca_pem(&self) -> &str {
        self.engine.authority.certificate_pem()
    }

    /// The requests so far, oldest first.
    pub fn ledger(&self) -> Vec<LedgerEntry> {
        self.engine.state().ledger.since(0).cloned().collect()
    }

    /// Rotates the credential of a component: a new key and certificate, as a new version of its
    /// vault secret, with `padding` bytes more than the document needs.
    ///
    /// # Errors
    /// If the component has no identity, or the document would outgrow a vault secret (25 KB).
    pub async fn rotate(
        &self,
        component: Component,
        padding: usize,
    ) -> Result<IssuedCredential, ChangeError> {
        self.change(move |world, ids, now| {
            seed::issue_certificate(world, component, ids, now, padding)
        })
        .await
    }

    /// Breaks one hop of one component, in the world as it runs.
    ///
    /// # Errors
    /// If the component has no identity.
    pub async fn drill(&self, drill: Drill) -> Result<(), ChangeError> {
        self.change(move |world, ids, now| apply_drill(world, drill, ids, now)).await
    }

    /// Changes make keys and write files: they have a thread of their own.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut World, &mut Ids, Timestamp) -> Result<T, SeedError> + Send + 'static,
    ) -> Result<T, ChangeError> {
        let engine = Arc::clone(&self.engine);
        tokio::task::spawn_blocking(move || engine.change(change))
            .await
            .map_err(ChangeError::Interrupted)?
    }

    /// Stops: no new connections, requests in flight finish (for at most five seconds).
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::debug!(%error, "the listener ended early");
        }
    }
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
