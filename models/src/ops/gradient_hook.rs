//! A gradient that differs from that of the computed function.

use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, Layout, Result, Shape, Tensor, backend::BackendStorage,
};

/// Returns x as it is, of any shape and on any device, whose gradient is `hook(x, dy)` in place of
/// dy (PyTorch's `Tensor.register_hook`).
///
/// # Errors
/// If a tensor operation fails.
pub(crate) fn gradient_hook(
    x: &Tensor,
    hook: impl Fn(&Tensor, &Tensor) -> crate::Result<Tensor> + Send + Sync + 'static,
) -> crate::Result<Tensor> {
    Ok(x.contiguous()?.apply_op1(Hook(hook))?)
}

struct Hook<F>(F);

impl<F> CustomOp1 for Hook<F>
where
    F: Fn(&Tensor, &Tensor) -> crate::Result<Tensor> + Send + Sync,
{
    fn name(&self) -> &'static str {
        "gradient hook"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((x.try_clone(layout)?, layout.shape().clone()))
    }

    fn cuda_fwd(&self, x: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        Ok((x.try_clone(layout)?, layout.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let dx = (self.0)(&x.detach(), dy);
        Ok(Some(dx.map_err(candle_core::Error::wrap)?))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Var;

    use super::*;
    use crate::testing::{close, normal};

    #[test]
    fn values_stay_and_gradients_are_what_the_hook_makes_of_them() {
        let x = Var::from_tensor(&normal("x", &[3, 4])).unwrap();
        let part = x.narrow(1, 1, 2).unwrap();
        let y = gradient_hook(&part, |x, dy| Ok((dy * 2.0)?.add(x)?)).unwrap();
        close(&y, &part, 1e-15, "values");
        let dy = normal("dy", &[3, 2]);
        let gradients = (&y * &dy).unwrap().sum_all().unwrap().backward().unwrap();
        let actual = gradients.get(&x).unwrap().narrow(1, 1, 2).unwrap();
        close(
            &actual,
            &((dy * 2.0).unwrap() + part).unwrap(),
            1e-12,
            "gradient",
        );
    }
}
