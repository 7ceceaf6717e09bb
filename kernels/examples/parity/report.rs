//! Tables of what was checked.

use serde_json::Value;

/// Failed cases that are printed; the record has all.
const MOST_FAILURES: usize = 40;

/// Prints a line per operation and the failures; whether all checks passed.
pub fn print(machine: &str, records: &[Value]) -> bool {
    println!("\n{machine}\n");
    let text = |record: &Value, key: &str| record[key].as_str().unwrap_or_default().to_string();
    let broken: Vec<&Value> = records.iter().filter(|r| r["family"].is_string()).collect();
    let checks: Vec<&Value> = records
        .iter()
        .filter(|r| r["passed"].is_boolean())
        .collect();
    let failed: Vec<&Value> = checks
        .iter()
        .copied()
        .filter(|r| r["passed"] != Value::Bool(true))
        .collect();
    println!(
        "{:<20} {:>6} {:>6} {:>12} {:>10}",
        "operation", "cases", "failed", "worst error", "tolerance"
    );
    let mut ops: Vec<String> = Vec::new();
    for record in &checks {
        let op = text(record, "op");
        if !ops.contains(&op) {
            ops.push(op);
        }
    }
    for op in ops {
        let own: Vec<&&Value> = checks.iter().filter(|r| text(r, "op") == op).collect();
        let bad = own
            .iter()
            .filter(|r| r["passed"] != Value::Bool(true))
            .count();
        let share = |r: &Value| {
            let error = r["error"].as_f64().unwrap_or(f64::INFINITY);
            (
                error / r["tolerance"].as_f64().unwrap_or(1.0).max(1e-12),
                error,
            )
        };
        let worst = own.iter().max_by(|a, b| share(a).0.total_cmp(&share(b).0));
        let (error, tolerance) = worst.map_or((0.0, 0.0), |r| {
            (share(r).1, r["tolerance"].as_f64().unwrap_or(0.0))
        });
        println!(
            "{op:<20} {:>6} {bad:>6} {error:>12.2e} {tolerance:>10.1e}",
            own.len()
        );
    }
    for record in failed.iter().take(MOST_FAILURES) {
        println!(
            "FAILED {} {}: error {} of {} {}",
            text(record, "op"),
            text(record, "case"),
            record["error"],
            record["tolerance"],
            text(record, "failure"),
        );
    }
    for record in &broken {
        println!(
            "BROKEN {}: {}",
            text(record, "family"),
            text(record, "failure")
        );
    }
    println!(
        "\n{} checks, {} failed, {} families broken",
        checks.len(),
        failed.len(),
        broken.len()
    );
    failed.is_empty() && broken.is_empty()
}
