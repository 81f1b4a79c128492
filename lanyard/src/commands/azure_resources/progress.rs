//! Shows the progress of a run: a live tree on a terminal, plain lines otherwise, or JSON lines.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use lanyard_changes::{AzureGraph, ProgressEvent, ProgressObserver, ProgressPhase, ResourceKey};
use parking_lot::Mutex;

use crate::output;

/// The flag for the form of progress messages.
#[derive(Debug, Clone, clap::Args)]
pub(in crate::commands) struct ProgressArgs {
    /// How progress is shown on standard error
    #[arg(long, value_enum, default_value = "auto", value_name = "FORM")]
    progress: ProgressForm,
}

/// The form of progress messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ProgressForm {
    /// A live tree on a terminal, plain lines otherwise
    Auto,
    /// One line for each step
    Plain,
    /// One JSON document for each step
    Json,
    /// No progress
    None,
}

/// Shows progress events.
#[derive(Debug)]
pub(in crate::commands) enum ProgressOutput {
    Tree(ProgressTree),
    Plain,
    Json,
    Silent,
}

impl ProgressArgs {
    pub(in crate::commands) fn output(&self) -> ProgressOutput {
        match self.progress {
            ProgressForm::Auto
                if std::io::stderr().is_terminal() && !output::is_dumb_terminal() =>
            {
                ProgressOutput::Tree(ProgressTree::default())
            }
            ProgressForm::Auto | ProgressForm::Plain => ProgressOutput::Plain,
            ProgressForm::Json => ProgressOutput::Json,
            ProgressForm::None => ProgressOutput::Silent,
        }
    }
}

impl ProgressOutput {
    /// Prepares the tree of the resources.
    pub(in crate::commands) fn begin(&self, graph: &AzureGraph) {
        if let Self::Tree(tree) = self {
            tree.begin(graph);
        }
    }

    /// Leaves the final state on the screen.
    pub(in crate::commands) fn end(&self) {
        if let Self::Tree(tree) = self {
            tree.end();
        }
    }
}

impl ProgressObserver for ProgressOutput {
    fn observe(&self, event: &ProgressEvent) {
        match self {
            Self::Tree(tree) => tree.observe(event),
            Self::Plain => output::print_stderr(&plain_line(event)),
            Self::Json => {
                let line = serde_json::to_string(event);
                output::print_stderr_document(&line.unwrap_or_else(|error| error.to_string()));
            }
            Self::Silent => {}
        }
    }
}

fn plain_line(event: &ProgressEvent) -> String {
    let phase = phase_text(&event.phase);
    format!("[{:>6.1} s] {}: {phase}", event.elapsed.as_secs_f64(), event.key)
}

fn phase_text(phase: &ProgressPhase) -> String {
    match phase {
        ProgressPhase::Started { write } => (*write).to_owned(),
        ProgressPhase::Accepted => "Azure is working on it".to_owned(),
        ProgressPhase::Waiting { reason, pause } => {
            format!("retrying in {:.0} s: {reason}", pause.as_secs_f64())
        }
        ProgressPhase::Succeeded => "done".to_owned(),
        ProgressPhase::Failed { reason } => format!("failed: {reason}"),
    }
}

/// One line for each resource that the run works on, below its dependency.
#[derive(Debug, Default)]
pub(in crate::commands) struct ProgressTree {
    screen: MultiProgress,
    lines: Mutex<BTreeMap<ResourceKey, ProgressBar>>,
    depths: Mutex<BTreeMap<ResourceKey, usize>>,
}

impl ProgressTree {
    fn begin(&self, graph: &AzureGraph) {
        let mut depths = self.depths.lock();
        for resource in graph.resources() {
            let above = resource.depends_on.iter().filter_map(|key| depths.get(key)).max();
            let depth = above.map_or(0, |depth| depth + 1);
            depths.insert(resource.key.clone(), depth);
        }
    }

    fn observe(&self, event: &ProgressEvent) {
        let mut lines = self.lines.lock();
        let line = lines.entry(event.key.clone()).or_insert_with(|| {
            let depth = self.depths.lock().get(&event.key).copied().unwrap_or_default();
            let line = self.screen.add(ProgressBar::new_spinner());
            line.set_style(active_style());
            line.set_prefix(format!("{}{}", "  ".repeat(depth), event.key));
            line.enable_steady_tick(Duration::from_millis(120));
            line
        });
        let text = output::neutralize(&phase_text(&event.phase)).into_owned();
        match event.phase {
            ProgressPhase::Succeeded | ProgressPhase::Failed { .. } => {
                line.set_style(finished_style());
                line.finish_with_message(text);
            }
            _ => line.set_message(text),
        }
    }

    fn end(&self) {
        for line in self.lines.lock().values().filter(|line| !line.is_finished()) {
            line.abandon();
        }
    }
}

fn active_style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {prefix} {wide_msg} {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn finished_style() -> ProgressStyle {
    ProgressStyle::with_template("  {prefix} {wide_msg} {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_line_has_time_resource_and_step() {
        let event = ProgressEvent {
            elapsed: Duration::from_millis(12_340),
            key: ResourceKey::new("vnet"),
            phase: ProgressPhase::Waiting {
                reason: "409 Conflict".to_owned(),
                pause: Duration::from_secs(4),
            },
        };
        assert_eq!(plain_line(&event), "[  12.3 s] vnet: retrying in 4 s: 409 Conflict");
    }
}
