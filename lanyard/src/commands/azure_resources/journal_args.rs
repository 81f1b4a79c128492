//! The journal of a command: the flags that name it, and how it is opened.

use std::sync::Arc;
use std::time::Duration;

use lanyard_changes::{
    ContainerAccess, JournalAccess, JournalCluster, JournalEvent, JournalHolder, JournalLocation,
    JournalTarget, StackError, StackRule,
};
use lanyard_clock::SharedClock;
use lanyard_infra::stacks;
use lanyard_vocabulary::cloud::CloudEndpoints;
use lanyard_vocabulary::{SubscriptionId, format_error_chain};

use crate::commands::azure_account::AzureAccount;
use crate::commands::rotation_timing::parse_duration;
use crate::exit::{CommandError, ExternalResult as _};
use crate::output;
use crate::settings::ProcessEnvironment;

/// The flag of the journal.
#[derive(Debug, Clone, Default, clap::Args)]
pub(in crate::commands) struct StateArgs {
    /// The journal, which records what lanyard created: a directory, or a blob container or a prefix in it, such as
    /// `https://ACCOUNT.blob.core.windows.net/CONTAINER/PREFIX`
    /// [default: `$LANYARD_STATE/SUBSCRIPTION/NAME` or `$XDG_STATE_HOME/lanyard/SUBSCRIPTION/NAME`; NAME is the
    /// infrastructure id of a cluster, otherwise the command and its name, such as `keyvault-harbour-dev`. A fleet has a
    /// journal for each cluster in it; default: `$LANYARD_STATE/fleet` or `$XDG_STATE_HOME/lanyard/fleet`]
    #[arg(long, value_name = "DIR|URL")]
    state: Option<JournalLocation>,
}

/// The flag of commands that write to the journal.
#[derive(Debug, Clone, clap::Args)]
pub(in crate::commands) struct LockArgs {
    /// How long to wait for another command that uses the journal [default: `75s` for a container, where a killed
    /// command keeps its lease for up to 60 s, and `0s` for a directory]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(in crate::commands) lock_timeout: Option<Duration>,
}

/// What the journal of a command depends on, beside its flags.
#[derive(Debug, Clone, Copy)]
pub(in crate::commands) struct JournalContext<'a> {
    pub(in crate::commands) account: &'a AzureAccount,
    pub(in crate::commands) environment: &'a ProcessEnvironment,
    pub(in crate::commands) clock: &'a SharedClock,
    pub(in crate::commands) lock_timeout: Option<Duration>,
}

impl StateArgs {
    /// The journal of a cluster or a stack. `name` is a part of the default location.
    pub(in crate::commands) fn journal(
        &self,
        context: JournalContext<'_>,
        cluster: JournalCluster,
        name: &str,
    ) -> Result<JournalTarget, CommandError> {
        let JournalContext { account, environment, .. } = context;
        let location =
            self.location(environment, account.endpoints, &account.subscription, name)?;
        let access = context.access(stacks::can_contain);
        Ok(JournalTarget { location, cluster, access, on_event: print_event })
    }

    /// The journal of one cluster of a fleet.
    pub(in crate::commands) fn fleet_journal(
        &self,
        context: JournalContext<'_>,
        cluster: JournalCluster,
    ) -> Result<JournalTarget, CommandError> {
        let base = match &self.state {
            Some(location) => location.clone(),
            None => default_base(context.environment)?.join(&["fleet"]),
        };
        check_host(&base, context.account.endpoints)?;
        let location = base.join(&[&cluster.infra_id, &cluster.name]);
        let access = context.access(lanyard_fleet::can_contain);
        Ok(JournalTarget { location, cluster, access, on_event: print_event })
    }

    /// Where the journal is. `name` is a part of the default location.
    pub(in crate::commands) fn location(
        &self,
        environment: &ProcessEnvironment,
        endpoints: &CloudEndpoints,
        subscription: &SubscriptionId,
        name: &str,
    ) -> Result<JournalLocation, CommandError> {
        let location = match &self.state {
            Some(location) => location.clone(),
            None => default_base(environment)?.join(&[subscription.as_str(), name]),
        };
        check_host(&location, endpoints)?;
        Ok(location)
    }

    /// The cluster in the journal of --state; `None` without the flag. Does not lock the journal.
    pub(in crate::commands) async fn read_cluster(
        &self,
        context: JournalContext<'_>,
    ) -> Option<Result<Option<JournalCluster>, CommandError>> {
        let location = self.state.as_ref()?;
        if let Err(error) = check_host(location, context.account.endpoints) {
            return Some(Err(error));
        }
        let cluster = location.read_cluster(&context.access(stacks::can_contain)).await;
        Some(cluster.map_err(StackError::from).map_err(CommandError::from))
    }
}

/// Fails if a token for storage would be sent to a host that is not in the cloud.
fn check_host(location: &JournalLocation, endpoints: &CloudEndpoints) -> Result<(), CommandError> {
    match location {
        JournalLocation::Container(url) if !url.is_in(endpoints) => {
            let (host, suffix) = (url.host(), endpoints.blob_suffix());
            let message = format!("the journal: `{host}` is not the host of a storage account");
            Err(CommandError::invalid_input(message).with_hint(format!(
                "lanyard sends its token for storage only to https://ACCOUNT.{suffix}; correct --state or LANYARD_STATE, or select the cloud with --cloud"
            )))
        }
        _ => Ok(()),
    }
}

impl JournalContext<'_> {
    fn access(self, stack_rule: StackRule) -> JournalAccess {
        let Self { account, clock, lock_timeout, .. } = self;
        JournalAccess {
            container: ContainerAccess {
                credential: Arc::clone(&account.credential),
                client_options: account.transport.client_options(),
            },
            holder: this_process(clock),
            clock: SharedClock::clone(clock),
            stack_rule,
            lock_timeout,
        }
    }
}

/// The location below which each journal has its own directory or prefix.
pub(in crate::commands) fn default_base(
    environment: &ProcessEnvironment,
) -> Result<JournalLocation, CommandError> {
    if let Some(text) = &environment.journals {
        return text.parse().or_invalid("LANYARD_STATE");
    }
    match &environment.state_directory {
        Some(directory) => Ok(JournalLocation::Directory(directory.join("lanyard"))),
        None => Err(CommandError::invalid_input("neither XDG_STATE_HOME nor HOME is set")
            .with_hint("name the directory of the journal with --state")),
    }
}

/// This process, for the users of commands that wait for it.
fn this_process(clock: &SharedClock) -> JournalHolder {
    let words = std::env::args().skip(1).take_while(|word| !word.starts_with('-'));
    let command = words.collect::<Vec<_>>().join(" ");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.map_or_else(|_| "an unknown host".to_owned(), |text| text.trim().to_owned());
    let (process, since) = (std::process::id(), clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"));
    JournalHolder::new(&format!("`lanyard {command}`, process {process} on {host}, since {since}"))
}

fn print_event(event: JournalEvent<'_>) {
    output::print_stderr(&match event {
        JournalEvent::Waiting { reason, timeout } => {
            format!("waiting up to {} s: {}", timeout.as_secs(), format_error_chain(reason))
        }
        JournalEvent::NotReleased(error) => format!("warning: {}", format_error_chain(error)),
    });
}
