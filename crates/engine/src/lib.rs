//! Requests in, tokens out: scheduler, step loop and ranks.

mod api;

pub use api::{
    EngineError, EngineInfo, Request, RequestUpdate, SpeculateOptions, Stop, Terminal, Usage,
};
