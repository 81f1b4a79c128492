//! The evaluation of template expressions.
//!
//! Parameters and variables are evaluated once, on first use. Expressions that do not call
//! `reference` are evaluated before the deployment starts, as Azure does.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use super::deployment_scope::DeploymentScope;
use super::expression::{
    FunctionCall, MemberAccess, TemplateExpression, TemplateFunction, TemplateOperand,
};
use super::resource_index::{ResourceReader, TemplateResourceIndex};
use super::template_error::{EvaluationError, JsonPath};
use super::template_functions::{concat, format_arguments, guid, string_argument};
use super::template_value::{TemplateKey, TemplateValue};

/// The maximum size of a template with the values of its variables and parameters, in bytes. Reference: "ARM
/// template best practices", template limits.
pub(super) const MAX_TEMPLATE_BYTES: usize = 4 * 1024 * 1024;

/// The maximum size of all intermediate values, in bytes; it bounds the time and memory of an evaluation.
const EVALUATION_BUDGET: usize = 8 * MAX_TEMPLATE_BYTES;

/// The maximum depth of a value, and of nested evaluations; it bounds the stack.
const MAX_DEPTH: usize = 200;

/// The place of an expression, which determines the functions that it can call.
pub(super) enum EvaluationPhase<'r> {
    /// The default value of a parameter: no variables, no `reference`.
    ParameterDefault,
    /// Values that must be known before the deployment: no `reference`.
    Declaration,
    /// The properties of a resource whose dependencies are deployed, or an output.
    Runtime { resources: &'r TemplateResourceIndex, reader: &'r mut dyn ResourceReader },
}

/// Parameters or variables by name, ignoring case.
#[derive(Default)]
struct NamedValues(BTreeMap<String, NamedValue>);

struct NamedValue {
    path: JsonPath,
    state: ValueState,
}

enum ValueState {
    Pending(TemplateValue),
    InProgress,
    Ready(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamedValueKind {
    Parameter,
    Variable,
}

impl NamedValueKind {
    const fn noun(self) -> &'static str {
        match self {
            Self::Parameter => "parameter",
            Self::Variable => "variable",
        }
    }
}

/// Evaluates the expressions of one template. `Debug` omits the values, because parameters can be secret.
pub(super) struct TemplateEvaluator {
    scope: DeploymentScope,
    parameters: NamedValues,
    variables: NamedValues,
    /// The bytes that remain of [`EVALUATION_BUDGET`].
    budget: usize,
    depth: usize,
}

impl fmt::Debug for TemplateEvaluator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TemplateEvaluator").finish_non_exhaustive()
    }
}

impl TemplateEvaluator {
    /// An evaluator without parameters or variables.
    pub(super) fn new(scope: DeploymentScope) -> Self {
        Self {
            scope,
            parameters: NamedValues::default(),
            variables: NamedValues::default(),
            budget: EVALUATION_BUDGET,
            depth: 0,
        }
    }

    /// Adds a parameter with a value.
    pub(super) fn add_parameter(&mut self, name: &str, path: &JsonPath, value: Value) {
        self.parameters.add(name, path, ValueState::Ready(value));
    }

    /// Adds a parameter whose default value is evaluated on first use.
    pub(super) fn add_parameter_default(
        &mut self,
        name: &str,
        path: &JsonPath,
        default: TemplateValue,
    ) {
        self.parameters.add(name, path, ValueState::Pending(default));
    }

    /// Adds a variable, which is evaluated on first use.
    pub(super) fn add_variable(&mut self, name: &str, path: &JsonPath, value: TemplateValue) {
        self.variables.add(name, path, ValueState::Pending(value));
    }

    /// Returns the value of a parameter. `path` is the position for an error.
    pub(super) fn parameter(&mut self, name: &str, path: &JsonPath) -> EvaluationResult<&Value> {
        self.named_value(NamedValueKind::Parameter, name, path)
    }

    /// Returns the value of a variable. `path` is the position for an error.
    pub(super) fn variable(&mut self, name: &str, path: &JsonPath) -> EvaluationResult<&Value> {
        self.named_value(NamedValueKind::Variable, name, path)
    }

    pub(super) fn scope(&self) -> &DeploymentScope {
        &self.scope
    }

    /// Evaluates all expressions in a value.
    pub(super) fn evaluate(
        &mut self,
        value: &TemplateValue,
        path: &JsonPath,
        phase: &mut EvaluationPhase<'_>,
    ) -> EvaluationResult<Value> {
        self.nested(path, |evaluator| match value {
            TemplateValue::Literal(literal) => evaluator.copy_value(literal, path),
            TemplateValue::Expression(expression) => {
                evaluator.evaluate_expression(expression, path, phase)
            }
            TemplateValue::Array(items) => {
                let items = items
                    .iter()
                    .enumerate()
                    .map(|(index, item)| evaluator.evaluate(item, &path.index(index), phase));
                Ok(Value::Array(items.collect::<Result<_, _>>()?))
            }
            TemplateValue::Object(members) => {
                let mut object = Map::new();
                for (key, value) in members {
                    let path = path.member(key.as_written());
                    let name = evaluator.evaluate_key(key, &path)?;
                    object.insert(name, evaluator.evaluate(value, &path, phase)?);
                }
                Ok(Value::Object(object))
            }
        })
    }

    /// Evaluates the expressions in a value, except those that call `reference`.
    pub(super) fn evaluate_ahead(
        &mut self,
        value: &TemplateValue,
        path: &JsonPath,
    ) -> EvaluationResult<TemplateValue> {
        self.nested(path, |evaluator| match value {
            TemplateValue::Literal(_) => Ok(value.clone()),
            TemplateValue::Expression(expression)
                if expression.calls(TemplateFunction::Reference) =>
            {
                Ok(value.clone())
            }
            TemplateValue::Expression(expression) => {
                let phase = &mut EvaluationPhase::Declaration;
                evaluator.evaluate_expression(expression, path, phase).map(TemplateValue::Literal)
            }
            TemplateValue::Array(items) => {
                let items = items
                    .iter()
                    .enumerate()
                    .map(|(index, item)| evaluator.evaluate_ahead(item, &path.index(index)));
                items.collect::<Result<_, _>>().map(TemplateValue::Array)
            }
            TemplateValue::Object(members) => {
                let members = members.iter().map(|(key, value)| {
                    let path = path.member(key.as_written());
                    let name = evaluator.evaluate_key(key, &path)?;
                    Ok((TemplateKey::Literal(name), evaluator.evaluate_ahead(value, &path)?))
                });
                members.collect::<Result<_, EvaluationError>>().map(TemplateValue::Object)
            }
        })
    }

    /// Evaluates an expression that must return a string as an argument of `function`.
    pub(super) fn evaluate_text(
        &mut self,
        expression: &TemplateExpression,
        path: &JsonPath,
        function: TemplateFunction,
    ) -> EvaluationResult<String> {
        let value =
            self.evaluate_expression(expression, path, &mut EvaluationPhase::Declaration)?;
        string_argument(function, value).map_err(|message| EvaluationError::at(path, message))
    }

    fn evaluate_key(&mut self, key: &TemplateKey, path: &JsonPath) -> EvaluationResult<String> {
        let TemplateKey::Expression { expression, .. } = key else {
            return Ok(key.as_written().to_owned());
        };
        match self.evaluate_expression(expression, path, &mut EvaluationPhase::Declaration)? {
            Value::String(name) => Ok(name),
            _ => Err(EvaluationError::at(path, "The name of a property must be a string.")),
        }
    }

    fn evaluate_expression(
        &mut self,
        expression: &TemplateExpression,
        path: &JsonPath,
        phase: &mut EvaluationPhase<'_>,
    ) -> EvaluationResult<Value> {
        let accesses = expression
            .accesses
            .iter()
            .map(|access| match access {
                MemberAccess::Property(name) => Ok(Value::from(name.as_str())),
                MemberAccess::Index(index) => {
                    self.nested(path, |evaluator| evaluator.evaluate_expression(index, path, phase))
                }
            })
            .collect::<EvaluationResult<Vec<_>>>()?;
        let value = match &expression.operand {
            TemplateOperand::Text(text) => Value::from(text.as_str()),
            TemplateOperand::Integer(number) => Value::from(*number),
            TemplateOperand::Call(call) => {
                if let Some(kind) = name_kind(call.function) {
                    return self.evaluate_name(kind, call, (path, &accesses), phase);
                }
                self.nested(path, |evaluator| evaluator.call(call, path, phase))?
            }
        };
        let member = access_members(&value, &accesses)
            .map_err(|message| EvaluationError::at(path, message))?;
        self.copy_value(member, path)
    }

    /// Evaluates `parameters('name')` or `variables('name')`, and copies only the accessed member.
    fn evaluate_name(
        &mut self,
        kind: NamedValueKind,
        call: &FunctionCall,
        (path, accesses): (&JsonPath, &[Value]),
        phase: &EvaluationPhase<'_>,
    ) -> EvaluationResult<Value> {
        if kind == NamedValueKind::Variable && matches!(phase, EvaluationPhase::ParameterDefault) {
            return Err(unexpected_function(TemplateFunction::Variables, path));
        }
        let Some(argument) = call.arguments.first() else {
            return Err(unexpected_function(call.function, path));
        };
        let name = self.nested(path, |it| it.evaluate_text(argument, path, call.function))?;
        let value = self.named_value(kind, &name, path)?;
        let member = access_members(value, accesses)
            .map_err(|message| EvaluationError::at(path, message))?
            .clone();
        self.charge(&member, path)?;
        Ok(member)
    }

    fn call(
        &mut self,
        call: &FunctionCall,
        path: &JsonPath,
        phase: &mut EvaluationPhase<'_>,
    ) -> EvaluationResult<Value> {
        let function = call.function;
        if function == TemplateFunction::Reference {
            return self.call_reference(call, path, phase);
        }
        let arguments = call
            .arguments
            .iter()
            .map(|argument| self.nested(path, |it| it.evaluate_expression(argument, path, phase)))
            .collect::<EvaluationResult<Vec<_>>>()?;
        let result = match function {
            TemplateFunction::Concat => concat(arguments),
            TemplateFunction::Format => format_arguments(arguments),
            TemplateFunction::Guid => guid(arguments),
            TemplateFunction::ResourceId => self.scope.resource_id_function(arguments),
            TemplateFunction::SubscriptionResourceId => {
                self.scope.subscription_resource_id_function(arguments)
            }
            TemplateFunction::Subscription => Ok(self.scope.subscription_object()),
            TemplateFunction::ResourceGroup => match self.scope.resource_group_object() {
                Some(group) => Ok(group.clone()),
                None => return Err(unexpected_function(function, path)),
            },
            TemplateFunction::Parameters
            | TemplateFunction::Variables
            | TemplateFunction::Reference => return Err(unexpected_function(function, path)),
        };
        result.map_err(|message| EvaluationError::at(path, message))
    }

    fn call_reference(
        &mut self,
        call: &FunctionCall,
        path: &JsonPath,
        phase: &mut EvaluationPhase<'_>,
    ) -> EvaluationResult<Value> {
        let EvaluationPhase::Runtime { resources, reader } = phase else {
            return Err(unexpected_function(TemplateFunction::Reference, path));
        };
        let arguments = call
            .arguments
            .iter()
            .map(|argument| self.evaluate_text(argument, path, call.function))
            .collect::<EvaluationResult<Vec<_>>>()?;
        let target = resources
            .resolve_reference(&arguments)
            .map_err(|message| EvaluationError::at(path, message))?;
        target.read(path, *reader).map_err(EvaluationError::Template)
    }

    /// Returns the value of a parameter or variable, which it evaluates on first use.
    fn named_value(
        &mut self,
        kind: NamedValueKind,
        name: &str,
        path: &JsonPath,
    ) -> EvaluationResult<&Value> {
        let noun = kind.noun();
        let not_found = || {
            EvaluationError::at(
                path,
                format!(
                    "The template {noun} '{name}' is not found. Please see https://aka.ms/arm-syntax-{noun}s for usage details."
                ),
            )
        };
        let lower = name.to_lowercase();
        let named = self.names(kind).0.get_mut(&lower).ok_or_else(not_found)?;
        if !matches!(named.state, ValueState::Ready(_)) {
            let definition = named.path.clone();
            let state = std::mem::replace(&mut named.state, ValueState::InProgress);
            let ValueState::Pending(value) = state else {
                let message = format!("Circular reference detected on template {noun} '{name}'.");
                return Err(EvaluationError::at(path, message));
            };
            let phase = &mut match kind {
                NamedValueKind::Parameter => EvaluationPhase::ParameterDefault,
                NamedValueKind::Variable => EvaluationPhase::Declaration,
            };
            let value = self
                .evaluate(&value, &definition, phase)
                .and_then(|value| check_depth(value, &definition))
                .map_err(|error| error.in_element(format!("{noun} '{name}'")))?;
            if let Some(named) = self.names(kind).0.get_mut(&lower) {
                named.state = ValueState::Ready(value);
            }
        }
        match self.names(kind).0.get(&lower).map(|named| &named.state) {
            Some(ValueState::Ready(value)) => Ok(value),
            Some(ValueState::Pending(_) | ValueState::InProgress) | None => Err(not_found()),
        }
    }

    fn names(&mut self, kind: NamedValueKind) -> &mut NamedValues {
        match kind {
            NamedValueKind::Parameter => &mut self.parameters,
            NamedValueKind::Variable => &mut self.variables,
        }
    }

    /// Runs a nested evaluation, unless it is nested too deeply.
    fn nested<T>(
        &mut self,
        path: &JsonPath,
        evaluate: impl FnOnce(&mut Self) -> EvaluationResult<T>,
    ) -> EvaluationResult<T> {
        if self.depth == MAX_DEPTH {
            return Err(EvaluationError::at(
                path,
                format!("The evaluation has more than {MAX_DEPTH} nested values."),
            ));
        }
        self.depth += 1;
        let result = evaluate(self);
        self.depth -= 1;
        result
    }

    fn copy_value(&mut self, value: &Value, path: &JsonPath) -> EvaluationResult<Value> {
        self.charge(value, path)?;
        Ok(value.clone())
    }

    /// Subtracts the size of a value from the budget.
    fn charge(&mut self, value: &Value, path: &JsonPath) -> EvaluationResult<()> {
        match self.budget.checked_sub(value_bytes(value)) {
            Some(budget) => {
                self.budget = budget;
                Ok(())
            }
            None => Err(EvaluationError::at(
                path,
                format!(
                    "The size of the template with the values of its variables and parameters exceeds the limit of {MAX_TEMPLATE_BYTES} bytes."
                ),
            )),
        }
    }
}

/// The result of an evaluation.
pub(super) type EvaluationResult<T> = Result<T, EvaluationError>;

impl NamedValues {
    fn add(&mut self, name: &str, path: &JsonPath, state: ValueState) {
        self.0.insert(name.to_lowercase(), NamedValue { path: path.clone(), state });
    }
}

const fn name_kind(function: TemplateFunction) -> Option<NamedValueKind> {
    match function {
        TemplateFunction::Parameters => Some(NamedValueKind::Parameter),
        TemplateFunction::Variables => Some(NamedValueKind::Variable),
        _ => None,
    }
}

fn unexpected_function(function: TemplateFunction, path: &JsonPath) -> EvaluationError {
    let name = function.name();
    EvaluationError::at(
        path,
        format!(
            "The template function '{name}' is not expected at this location. Please see https://aka.ms/arm-functions for usage details."
        ),
    )
}

/// Applies `accesses` to a value. Property names ignore case. The error text is a full sentence.
fn access_members<'v>(value: &'v Value, accesses: &[Value]) -> Result<&'v Value, String> {
    accesses.iter().try_fold(value, |value, access| match (value, access) {
        (Value::Object(members), Value::String(name)) => members
            .get(name)
            .or_else(|| super::template_parameters::member(members, name))
            .ok_or_else(|| {
                let names: Vec<_> = members.keys().map(String::as_str).collect();
                format!(
                    "The language expression property '{name}' doesn't exist, available properties are '{}'.",
                    names.join(", ")
                )
            }),
        (Value::Array(items), Value::Number(index)) => {
            let place = index.as_u64().and_then(|index| usize::try_from(index).ok());
            place.and_then(|place| items.get(place)).ok_or_else(|| {
                format!("The language expression property array index '{index}' is out of bounds.")
            })
        }
        (Value::Object(_), Value::Number(index)) => Err(format!(
            "The language expression property '{index}' can't be evaluated, property name must be a string."
        )),
        (_, Value::String(name)) => {
            Err(format!("The language expression property '{name}' can't be evaluated."))
        }
        (_, Value::Number(index)) => {
            Err(format!("The language expression property '{index}' can't be evaluated."))
        }
        _ => Err("An index must be a string or an integer.".to_owned()),
    })
}

/// The approximate size of a value as JSON, in bytes.
fn value_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(value_bytes).sum::<usize>() + 2,
        Value::Object(members) => {
            members.iter().map(|(name, value)| name.len() + 4 + value_bytes(value)).sum::<usize>()
                + 2
        }
    }
}

/// Rejects a value that is nested too deeply to be processed on the stack.
fn check_depth(value: Value, path: &JsonPath) -> EvaluationResult<Value> {
    if value_depth(&value) <= MAX_DEPTH {
        return Ok(value);
    }
    Err(EvaluationError::at(path, format!("The value has more than {MAX_DEPTH} nested values.")))
}

fn value_depth(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
        Value::Array(items) => 1 + items.iter().map(value_depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(value_depth).max().unwrap_or(0),
    }
}

#[cfg(test)]
pub(super) mod tests;
