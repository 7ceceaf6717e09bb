//! Matrix products by cuBLASLt. The algorithm is timed once per (bucket of rows, shape, format) on
//! the real operands and kept; a product of a known shape neither allocates nor waits.

use std::collections::HashMap;
use std::mem::{MaybeUninit, size_of_val};
use std::ptr::from_ref;

use cudarc::cublaslt::{result as lt, sys};
use cudarc::driver;

use super::{call, graph};
use crate::driver::Product;
use crate::error::{Error, Result};

/// CUBLAS_OP_T, which cuBLASLt takes from cuBLAS.
const TRANSPOSED: i32 = 1;
const WORKSPACE_BYTES: usize = 64 << 20;
/// Candidates that are timed, and repetitions of each after a first one.
const CANDIDATES: usize = 16;
const REPETITIONS: usize = 3;

/// Rows that share an algorithm.
fn bucket(rows: usize) -> usize {
    match rows {
        0..=64 => rows.next_multiple_of(8),
        _ => rows.next_power_of_two(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Shape {
    rows: usize,
    input: usize,
    output: usize,
    out_f32: bool,
}

/// Descriptors of a product of one shape.
#[derive(Clone, Copy)]
struct Plan {
    operation: sys::cublasLtMatmulDesc_t,
    w: sys::cublasLtMatrixLayout_t,
    x: sys::cublasLtMatrixLayout_t,
    out: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

pub struct Products {
    handle: sys::cublasLtHandle_t,
    workspace: driver::sys::CUdeviceptr,
    plans: HashMap<Shape, Plan>,
    /// By bucket of rows.
    algorithms: HashMap<Shape, sys::cublasLtMatmulAlgo_t>,
}

fn lt_call<T>(name: &'static str, result: std::result::Result<T, lt::CublasError>) -> Result<T> {
    result.map_err(|error| Error::Call {
        call: name,
        message: format!("{:?}", error.0),
    })
}

impl Products {
    /// Opens cuBLASLt, which was found, in the current context.
    pub fn new() -> Result<Self> {
        Ok(Self {
            handle: lt_call("cublasLtCreate", lt::create_handle())?,
            // SAFETY: the size is not zero.
            workspace: call("cuMemAlloc", unsafe {
                driver::result::malloc_sync(WORKSPACE_BYTES)
            })?,
            plans: HashMap::new(),
            algorithms: HashMap::new(),
        })
    }

    /// # Safety
    /// The addresses of the product are live and large enough for its shape.
    pub unsafe fn multiply(&mut self, stream: driver::sys::CUstream, p: &Product) -> Result<()> {
        let shape = Shape {
            rows: p.rows,
            input: p.input,
            output: p.output,
            out_f32: p.out_f32,
        };
        let plan = match self.plans.get(&shape) {
            Some(plan) => *plan,
            None => {
                // SAFETY: the caller's promise.
                let plan = unsafe { self.plan(stream, p, shape)? };
                self.plans.insert(shape, plan);
                plan
            }
        };
        // SAFETY: the caller's promise.
        unsafe { self.run(stream, p, &plan, &plan.algorithm) }
    }

    /// In cuBLASLt's column-major eyes: out `[output, rows]` = w^T `[output, input]` x `[input, rows]`.
    unsafe fn run(
        &self,
        stream: driver::sys::CUstream,
        p: &Product,
        plan: &Plan,
        algorithm: &sys::cublasLtMatmulAlgo_t,
    ) -> Result<()> {
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: the descriptors and the workspace live; the addresses are the caller's promise.
        lt_call("cublasLtMatmul", unsafe {
            lt::matmul(
                self.handle,
                plan.operation,
                from_ref(&one).cast(),
                from_ref(&zero).cast(),
                p.w as *const _,
                plan.w,
                p.x as *const _,
                plan.x,
                p.out as *const _,
                plan.out,
                p.out as *mut _,
                plan.out,
                algorithm,
                self.workspace as *mut _,
                WORKSPACE_BYTES,
                stream.cast(),
            )
        })
    }

    unsafe fn plan(
        &mut self,
        stream: driver::sys::CUstream,
        p: &Product,
        shape: Shape,
    ) -> Result<Plan> {
        let mut plan = Plan::describe(shape)?;
        let shared = Shape {
            rows: bucket(shape.rows),
            ..shape
        };
        let known = self.algorithms.get(&shared).copied();
        plan.algorithm = match known.filter(|algorithm| self.suits(&plan, algorithm)) {
            Some(algorithm) => algorithm,
            None => {
                // SAFETY: the caller's promise.
                let fastest = unsafe { self.fastest(stream, p, &plan)? };
                self.algorithms.insert(shared, fastest);
                fastest
            }
        };
        Ok(plan)
    }

    fn suits(&self, plan: &Plan, algorithm: &sys::cublasLtMatmulAlgo_t) -> bool {
        let mut checked = MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::uninit();
        // SAFETY: all descriptors live; the result is written on success.
        unsafe {
            let status = sys::cublasLtMatmulAlgoCheck(
                self.handle,
                plan.operation,
                plan.w,
                plan.x,
                plan.out,
                plan.out,
                algorithm,
                checked.as_mut_ptr(),
            );
            status.result().is_ok() && checked.assume_init().workspaceSize <= WORKSPACE_BYTES
        }
    }

    /// Times what the heuristic proposes on the operands themselves.
    unsafe fn fastest(
        &self,
        stream: driver::sys::CUstream,
        p: &Product,
        plan: &Plan,
    ) -> Result<sys::cublasLtMatmulAlgo_t> {
        let mut fastest: Option<(f32, sys::cublasLtMatmulAlgo_t)> = None;
        let mut failure = None;
        for candidate in self.candidates(plan)? {
            // SAFETY: the caller's promise.
            let run = || unsafe { self.run(stream, p, plan, &candidate) };
            let timed = run()
                .and_then(|()| graph::time(stream, || (0..REPETITIONS).try_for_each(|_| run())));
            match timed {
                Ok(ms) if fastest.is_none_or(|(best, _)| ms < best) => {
                    fastest = Some((ms, candidate));
                }
                Ok(_) => {}
                Err(error) => failure = Some(error),
            }
        }
        match (fastest, failure) {
            (Some((_, algorithm)), _) => Ok(algorithm),
            (None, Some(error)) => Err(error),
            (None, None) => Err(Error::Call {
                call: "cublasLtMatmulAlgoGetHeuristic",
                message: format!("no algorithm for {} x {} -> {}", p.rows, p.input, p.output),
            }),
        }
    }

    fn candidates(&self, plan: &Plan) -> Result<Vec<sys::cublasLtMatmulAlgo_t>> {
        use sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as MOST;
        let preference = lt_call("cublasLtMatmulPreferenceCreate", lt::create_matmul_pref())?;
        let mut found = [MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::uninit(); CANDIDATES];
        let mut count = 0;
        // SAFETY: all descriptors live; `found` has room for as many as are asked for, and the first
        // `count` of them are written.
        unsafe {
            let bytes = WORKSPACE_BYTES;
            let set = lt::set_matmul_pref_attribute(
                preference,
                MOST,
                from_ref(&bytes).cast(),
                size_of_val(&bytes),
            );
            let status = set.and_then(|()| {
                sys::cublasLtMatmulAlgoGetHeuristic(
                    self.handle,
                    plan.operation,
                    plan.w,
                    plan.x,
                    plan.out,
                    plan.out,
                    preference,
                    CANDIDATES as i32,
                    found.as_mut_ptr().cast(),
                    &mut count,
                )
                .result()
            });
            _ = lt::destroy_matmul_pref(preference);
            lt_call("cublasLtMatmulAlgoGetHeuristic", status)?;
            let found = found[..count as usize].iter().map(|f| f.assume_init());
            let good = found.filter(|f| f.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
            Ok(good.map(|f| f.algo).collect())
        }
    }

    /// Gives everything back; nothing may be multiplied afterwards.
    pub unsafe fn free(&mut self) {
        // SAFETY: all made by this, destroyed once.
        unsafe {
            for (_, plan) in self.plans.drain() {
                _ = lt::destroy_matmul_desc(plan.operation);
                for layout in [plan.w, plan.x, plan.out] {
                    _ = lt::destroy_matrix_layout(layout);
                }
            }
            _ = driver::result::free_sync(self.workspace);
            _ = lt::destroy_handle(self.handle);
        }
    }
}

impl Plan {
    /// Descriptors; the algorithm is still to be chosen.
    fn describe(shape: Shape) -> Result<Self> {
        use sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        use sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA;
        use sys::cudaDataType::{CUDA_R_16BF, CUDA_R_32F};
        let operation = lt_call(
            "cublasLtMatmulDescCreate",
            lt::create_matmul_desc(CUBLAS_COMPUTE_32F, CUDA_R_32F),
        )?;
        // SAFETY: the descriptor was just made; the attribute is one enumerator.
        lt_call("cublasLtMatmulDescSetAttribute", unsafe {
            lt::set_matmul_desc_attribute(
                operation,
                CUBLASLT_MATMUL_DESC_TRANSA,
                from_ref(&TRANSPOSED).cast(),
                size_of_val(&TRANSPOSED),
            )
        })?;
        let layout = |kind, rows: usize, columns: usize| {
            lt_call(
                "cublasLtMatrixLayoutCreate",
                lt::create_matrix_layout(kind, rows as u64, columns as u64, rows as i64),
            )
        };
        let out = if shape.out_f32 {
            CUDA_R_32F
        } else {
            CUDA_R_16BF
        };
        Ok(Self {
            operation,
            w: layout(CUDA_R_16BF, shape.input, shape.output)?,
            x: layout(CUDA_R_16BF, shape.input, shape.rows)?,
            out: layout(out, shape.output, shape.rows)?,
            algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
        })
    }
}
