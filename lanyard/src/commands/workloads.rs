//! How the components run: a file and the flags that win over it, for all commands that make workloads.

use std::path::PathBuf;
use std::str::FromStr;

use lanyard_desired::templates::WorkloadTemplates;
use lanyard_vocabulary::Component;
use serde_json::{Map, Value, json};

use super::go_bool::GoBool;
use super::problem_text::problem_lines;
use crate::exit::CommandError;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Workloads")]
pub(crate) struct WorkloadArgs {
    /// How the components run, as a YAML file; without it each is a canary
    #[arg(long, value_name = "FILE")]
    templates: Option<PathBuf>,
    /// The image of the canaries; wins over the file, as the other flags of canaries do
    #[arg(long, value_name = "IMAGE")]
    canary_image: Option<String>,
    /// What the canary of a component calls, such as `disk=GET https://…`; nothing after the `=` is
    /// no call; may be given for each component
    #[arg(long, value_name = "COMPONENT=CALL")]
    canary_call: Vec<CanaryCall>,
    /// The port of the canaries' pages; in the network of the node each component has its own,
    /// counted from here
    #[arg(long, value_name = "PORT")]
    canary_metrics_port: Option<u16>,
    /// Whether canaries are in the network of their node
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    canary_host_network: Option<GoBool>,
}

/// What the canary of a component calls.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CanaryCall {
    component: Component,
    call: String,
}

impl FromStr for CanaryCall {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (component, call) = text.split_once('=').ok_or("give COMPONENT=CALL")?;
        let component: Component = component.parse().map_err(error_text)?;
        Ok(Self { component, call: call.to_owned() })
    }
}

fn error_text(error: impl std::error::Error) -> String {
    error.to_string()
}

impl WorkloadArgs {
    /// The templates of the file, with the flags in the place of its fields.
    pub(crate) fn load_templates(&self) -> Result<WorkloadTemplates, CommandError> {
        let (name, text) = match &self.templates {
            None => ("the flags of canaries".to_owned(), String::new()),
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    CommandError::invalid_input(format!(
                        "--templates: {} cannot be read",
                        path.display()
                    ))
                    .with_cause(&error)
                    .with_hint("give a file with --templates, or leave it out for canaries")
                })?;
                (format!("the templates in {}", path.display()), text)
            }
        };
        WorkloadTemplates::parse_with_canary_overrides(&text, self.canary_overrides()).map_err(
            |problems| {
                let lines = problem_lines(&problems);
                CommandError::invalid_input(format!("{name} cannot be used\n\n{lines}")).with_hint(
                    "correct every field above; flags of canaries stand for fields of `canary`",
                )
            },
        )
    }

    /// The flags as the fields that they stand for.
    fn canary_overrides(&self) -> Map<String, Value> {
        let calls: Map<_, _> = self
            .canary_call
            .iter()
            .map(|it| (it.component.name().to_owned(), json!(it.call)))
            .collect();
        let fields = [
            ("image", self.canary_image.as_ref().map(|image| json!(image))),
            ("metricsPort", self.canary_metrics_port.map(|port| json!(port))),
            ("hostNetwork", self.canary_host_network.map(|it| json!(it.0))),
            ("calls", (!calls.is_empty()).then_some(Value::Object(calls))),
        ];
        let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        given.collect()
    }
}
