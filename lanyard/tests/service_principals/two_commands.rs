//! Two commands whose requests are interleaved at random.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use azure_core::http::HttpClient;
use futures::FutureExt as _;
use lanyard_clock::Clock as _;
use lanyard_emulator::testing::AzureState;
use lanyard_service_principals::RotationOptions;
use lanyard_vocabulary::format_error_chain;

use crate::engine_client::{CutPosition, EngineClient, RequestGate};
use crate::environment::{Environment, Moment};

/// A command, as `lanyard/src/commands` runs it for one service principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Create,
    Refresh { overlap: Duration },
    Rotate { overlap: Duration, waits: bool },
}

/// What was before the two commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum History {
    Empty,
    Created,
    /// The earlier certificate is still accepted.
    Rotated,
    /// A rotation was killed after it created a certificate.
    Interrupted,
    /// Another client removed the certificates of the application.
    Unregistered,
}

/// What happened in the sequences.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sequences: usize,
    pub(crate) requests: usize,
    /// Rotations that succeeded.
    pub(crate) rotated: usize,
    pub(crate) killed: usize,
    /// Commands that lost the lease, or waited for it in vain.
    pub(crate) without_lease: usize,
}

/// The states from which the sequences start.
pub(crate) struct TwoCommands<'a> {
    environment: &'a Environment,
    states: Vec<(History, AzureState)>,
}

/// How a command ended; `None` if it was killed.
type Outcome = Option<Result<(), String>>;

type Work<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;

/// A command during a sequence.
struct Run<'a> {
    command: Command,
    client: Arc<EngineClient>,
    /// `None` when the command has ended.
    work: Option<Work<'a>>,
    outcome: Outcome,
}

const ROTATE: Command = Command::Rotate { overlap: Duration::from_mins(10), waits: false };

impl<'a> TwoCommands<'a> {
    pub(crate) async fn prepare(environment: &'a Environment) -> Self {
        let mut commands = Self { environment, states: Vec::new() };
        commands.save(History::Empty);
        commands.run_alone(Command::Create, None).await;
        commands.save(History::Created);
        let created = environment.state();
        environment.remove_certificates();
        commands.save(History::Unregistered);
        environment.set_state(&created);
        for request in 0.. {
            environment.set_state(&created);
            commands.run_alone(ROTATE, Some((request, CutPosition::BeforeRequest))).await;
            let moment = environment.moment();
            if moment.newest != moment.used {
                break;
            }
        }
        commands.save(History::Interrupted);
        environment.set_state(&created);
        commands.run_alone(ROTATE, None).await;
        commands.save(History::Rotated);
        commands
    }

    fn save(&mut self, history: History) {
        self.states.push((history, self.environment.state()));
    }

    async fn run_alone(&self, command: Command, cut: Option<(usize, CutPosition)>) {
        let gate = Arc::default();
        let mut runs = [self.start(command, cut, &gate)];
        let mut random = fastrand::Rng::with_seed(0);
        self.interleave(&mut runs, &gate, &mut random, |_| ()).await;
        assert!(runs[0].outcome == Some(Ok(())) || cut.is_some(), "{:?}", runs[0].outcome);
    }

    /// Runs two random commands from a random state.
    pub(crate) async fn run_sequence(&self, seed: u64, counts: &mut Counts) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (history, state) = &self.states[random.usize(0..self.states.len())];
        self.environment.set_state(state);
        self.environment.clock().advance(Duration::from_mins(random.u64(0..20)));
        let before = self.environment.moment();
        let gate = Arc::default();
        let killed = random.choice([None, None, Some(0), Some(1)]).flatten();
        let mut runs = [0, 1].map(|number| {
            let position =
                if random.bool() { CutPosition::BeforeRequest } else { CutPosition::AfterRequest };
            let cut = (killed == Some(number)).then(|| (random.usize(0..45), position));
            self.start(random_command(*history, &mut random), cut, &gate)
        });
        let commands = runs.each_ref().map(|run| run.command);
        let context = format!("seed {seed}: {history:?}, {commands:?}, killed: {killed:?}");
        let (mut was_good, mut used) = (before.is_good(), BTreeSet::new());
        counts.requests += self
            .interleave(&mut runs, &gate, &mut random, |moment| {
                was_good |= moment.is_good();
                let is_good = moment.is_good() || !was_good;
                assert!(is_good, "the application refuses the certificate: {context}: {moment:?}");
                used.extend(moment.used.clone());
            })
            .await;
        let after = self.environment.moment();
        for run in &runs {
            check_outcome(run, &before, &after, &context);
        }
        let is_success = |run: &&Run<'_>| run.outcome == Some(Ok(()));
        let rotated = runs.iter().filter(is_success);
        let rotated = rotated.filter(|it| matches!(it.command, Command::Rotate { .. })).count();
        used.retain(|certificate| before.used.as_ref() != Some(certificate));
        assert!(used.len() >= rotated, "{rotated} rotations: {context}: {used:?}");
        counts.sequences += 1;
        counts.rotated += rotated;
        let failed = |run: &&Run<'_>| matches!(run.outcome, Some(Err(_)));
        counts.without_lease += runs.iter().filter(failed).count();
        counts.killed += runs.iter().filter(|it| it.outcome.is_none()).count();
    }

    /// Starts a command, which `cut` kills at a request.
    fn start(
        &self,
        command: Command,
        cut: Option<(usize, CutPosition)>,
        gate: &Arc<RequestGate>,
    ) -> Run<'a> {
        let client = EngineClient::behind_gate(Arc::clone(&self.environment.engine), gate);
        client.begin_run(cut, None);
        let work = run_command(self.environment, command, Arc::<EngineClient>::clone(&client));
        Run { command, client, work: Some(Box::pin(work)), outcome: None }
    }

    /// Runs the commands to their ends. Before each request, `check` gets what the environment has. Returns the number
    /// of requests.
    async fn interleave(
        &self,
        runs: &mut [Run<'_>],
        gate: &RequestGate,
        random: &mut fastrand::Rng,
        mut check: impl FnMut(&Moment),
    ) -> usize {
        let mut requests = 0;
        loop {
            settle(runs, random).await;
            check(&self.environment.moment());
            if runs.iter().all(|run| run.work.is_none()) {
                return requests;
            }
            // Requests are slow from time to time.
            let stalls = random.u8(0..8) == 0;
            if !stalls && gate.let_one_pass(|count| random.usize(0..count)) {
                requests += 1;
            } else {
                let clock = self.environment.clock();
                clock.advance(clock.time_until_next_deadline().unwrap_or(Duration::from_secs(1)));
            }
        }
    }
}

fn random_command(history: History, random: &mut fastrand::Rng) -> Command {
    let overlap = Duration::from_mins(if random.bool() { 10 } else { 0 });
    match random.u8(0..5) {
        _ if history == History::Empty => Command::Create,
        0 => Command::Create,
        1 => Command::Refresh { overlap },
        _ => Command::Rotate { overlap, waits: random.bool() },
    }
}

/// A command that succeeds has done its work, or found it done. Requests that are too slow lose the lease.
fn check_outcome(run: &Run<'_>, before: &Moment, after: &Moment, context: &str) {
    match &run.outcome {
        None => return,
        Some(Ok(())) => {}
        Some(Err(error)) => {
            return assert!(error.contains("lease of `https://"), "{context}: {error}");
        }
    }
    assert!(after.is_good(), "{context}: {after:?}");
    if matches!(run.command, Command::Rotate { .. }) {
        assert_ne!(after.used, before.used, "{context}");
    }
}

/// Polls the commands in random order until all wait for a request or for time to pass.
async fn settle(runs: &mut [Run<'_>], random: &mut fastrand::Rng) {
    for _ in 0..ROUNDS {
        let first = random.usize(0..runs.len());
        for number in 0..runs.len() {
            let run = &mut runs[(first + number) % runs.len()];
            let Some(work) = &mut run.work else { continue };
            let polled = std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context)));
            if let Poll::Ready(outcome) = polled.await {
                (run.work, run.outcome) = (None, Some(outcome));
            } else if run.client.reached().now_or_never().is_some() {
                run.work = None;
            }
        }
        tokio::task::yield_now().await;
        // The only blocking thread runs this after all earlier blocking work.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    }
}

/// More than the number of layers between a command and its HTTP client.
const ROUNDS: usize = 8;

/// Runs a command as `lanyard/src/commands` does: under the lock of the journal, but without it during the overlap.
async fn run_command(
    environment: &Environment,
    command: Command,
    http: Arc<dyn HttpClient>,
) -> Result<(), String> {
    let (client, names) = (environment.client(Arc::clone(&http)), &environment.names);
    let holder = format!("{command:?}");
    let lock = async || {
        let locked = environment.lock(&holder, Arc::clone(&http)).await;
        locked.map_err(|error| format_error_chain(&error))
    };
    let (options, waits) = match command {
        Command::Create => (None, false),
        Command::Refresh { overlap } => (Some((true, overlap)), false),
        Command::Rotate { overlap, waits } => (Some((false, overlap)), waits),
    };
    let work = async {
        match options {
            None => environment.create(&client).await,
            Some((only_due, overlap)) => {
                client.rotate(names, RotationOptions { only_due, overlap }, &|_| ()).await
            }
        }
    };
    let held = lock().await?;
    let done = held.while_held(work).await;
    held.release().await.map_err(|error| format_error_chain(&error))?;
    let done = done.map_err(|error| format_error_chain(&error))?;
    let done = done.map_err(|error| format_error_chain(&error))?;
    let Some((_, overlap)) = options.filter(|_| waits) else { return Ok(()) };
    environment.clock().sleep(overlap).await;
    let held = lock().await?;
    let finished = held.while_held(client.finish_rotation(names, &done, overlap, &|_| ())).await;
    held.release().await.map_err(|error| format_error_chain(&error))?;
    let finished = finished.map_err(|error| format_error_chain(&error))?;
    finished.map(drop).map_err(|error| format_error_chain(&error))
}
