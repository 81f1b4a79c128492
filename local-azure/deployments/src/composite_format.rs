//! Composite format strings, as in `format('{0}-{1:D2}', 'a', 7)`.
//!
//! Reference: .NET, "Composite formatting" and "Standard numeric format strings" with the invariant culture.
//! Implemented: `{n}`, `{n:D4}`, `{n:N0}`, `{n:000}`, `{{` and `}}`.

use serde_json::Value;

/// The largest precision of a number's format.
const MAX_PRECISION: usize = 99;

/// Replaces the placeholders of `format` with `arguments`. The error text is a full sentence.
pub(super) fn format_composite(format: &str, arguments: &[Value]) -> Result<String, String> {
    let mut formatted = String::new();
    let mut rest = format;
    while let Some(brace) = rest.find(['{', '}']) {
        let (literal, from_brace) = rest.split_at(brace);
        formatted.push_str(literal);
        let (brace, after) = from_brace.split_at(1);
        if let Some(after) = after.strip_prefix(brace) {
            formatted.push_str(brace);
            rest = after;
            continue;
        }
        let Some((placeholder, after)) = after.split_once('}').filter(|_| brace == "{") else {
            return Err(incorrect_format(format));
        };
        formatted.push_str(&format_placeholder(format, placeholder, arguments)?);
        rest = after;
    }
    formatted.push_str(rest);
    Ok(formatted)
}

fn incorrect_format(format: &str) -> String {
    format!("Input string '{format}' was not in a correct format.")
}

fn format_placeholder(
    format: &str,
    placeholder: &str,
    arguments: &[Value],
) -> Result<String, String> {
    let (index, specifier) = match placeholder.split_once(':') {
        Some((index, specifier)) => (index, Some(specifier)),
        None => (placeholder, None),
    };
    if index.contains(',') {
        return Err(format!(
            "The local Azure does not implement the alignment in '{{{placeholder}}}'."
        ));
    }
    let Ok(index) = index.trim_end().parse::<usize>() else { return Err(incorrect_format(format)) };
    match arguments.get(index) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Bool(true)) => Ok("True".to_owned()),
        Some(Value::Bool(false)) => Ok("False".to_owned()),
        Some(Value::Number(number)) => match number.as_i64() {
            Some(number) => format_integer(number, specifier.unwrap_or_default()),
            None => Err(unsupported_argument(index)),
        },
        Some(Value::Null | Value::Array(_) | Value::Object(_)) => Err(unsupported_argument(index)),
        None => Err("Index (zero based) must be greater than or equal to zero and less than the size of the argument list.".to_owned()),
    }
}

fn unsupported_argument(index: usize) -> String {
    format!("The argument of placeholder '{index}' is no string, integer or boolean.")
}

fn format_integer(number: i64, specifier: &str) -> Result<String, String> {
    let sign = if number < 0 { "-" } else { "" };
    let digits = number.unsigned_abs().to_string();
    if specifier.is_empty() {
        return Ok(format!("{sign}{digits}"));
    }
    let (kind, precision) = specifier.split_at_checked(1).unwrap_or((specifier, ""));
    let precision = if precision.is_empty() {
        Some(None)
    } else {
        precision.parse().ok().filter(|precision| *precision <= MAX_PRECISION).map(Some)
    };
    match (kind, precision) {
        ("D" | "d", Some(precision)) => {
            Ok(format!("{sign}{digits:0>width$}", width = precision.unwrap_or(0)))
        }
        ("N" | "n", Some(precision)) => {
            let fraction = "0".repeat(precision.unwrap_or(2));
            let point = if fraction.is_empty() { "" } else { "." };
            Ok(format!("{sign}{}{point}{fraction}", with_group_separators(&digits)))
        }
        _ if specifier.len() <= MAX_PRECISION && specifier.bytes().all(|byte| byte == b'0') => {
            Ok(format!("{sign}{digits:0>width$}", width = specifier.len()))
        }
        _ => Err(format!(
            "The local Azure does not implement the number format '{specifier}'. Implemented: D, N with a precision, and zeros."
        )),
    }
}

/// Inserts a comma before every third digit from the right.
fn with_group_separators(digits: &str) -> String {
    let mut separated = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            separated.push(',');
        }
        separated.push(digit);
    }
    separated
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn format(format: &str, arguments: &Value) -> Result<String, String> {
        format_composite(format, arguments.as_array().unwrap())
    }

    #[test]
    fn placeholders_are_replaced_as_dotnet_does() {
        let cases = [
            // The example of the function's reference.
            (
                "{0}, {1}. Formatted number: {2:N0}",
                json!(["Hello", "User", 8_175_133]),
                "Hello, User. Formatted number: 8,175,133",
            ),
            ("{1}{0}{1}", json!(["a", "b"]), "bab"),
            ("{{{0}}}", json!(["a"]), "{a}"),
            ("{{0}}", json!(["a"]), "{0}"),
            ("{0}", json!([true]), "True"),
            ("{0:D4}", json!([-7]), "-0007"),
            ("{0:D}", json!([7]), "7"),
            ("{0:N}", json!([-1234]), "-1,234.00"),
            ("{0:N1}", json!([999]), "999.0"),
            ("{0:000}", json!([5]), "005"),
            ("{0:X}", json!(["a string ignores its format"]), "a string ignores its format"),
            ("{0}", json!([i64::MIN]), "-9223372036854775808"),
            ("{0 }é", json!(["ü"]), "üé"),
            ("", json!(["unused"]), ""),
        ];
        for (text, arguments, expected) in cases {
            assert_eq!(format(text, &arguments).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_formats_are_rejected() {
        let cases = [
            ("{0", "correct format"),
            ("0}", "correct format"),
            ("{}", "correct format"),
            ("{-1}", "correct format"),
            ("{a}", "correct format"),
            ("{{0}", "correct format"),
            ("{2}", "less than the size of the argument list"),
            ("{0,5}", "alignment"),
            ("{1:X}", "'X'"),
            ("{1:D100}", "'D100'"),
            ("{1:é}", "'é'"),
        ];
        for (text, expected) in cases {
            let error = format(text, &json!(["a", 1])).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        for argument in [json!([]), json!({}), json!(null), json!(1.5)] {
            assert!(format("{0}", &json!([argument])).unwrap_err().contains("no string"));
        }
    }
}
