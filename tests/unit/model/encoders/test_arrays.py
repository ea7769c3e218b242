import numpy as np
import pytest
import torch

from model.encoders.arrays import array_on, arrays_on

CPU, CUDA = torch.device("cpu"), torch.device("cuda")  # naming a device needs no such device
VALUES = np.array([[3.0, -4.0], [0.0, 0.0], [1e-3, 20.0]], dtype=np.float32)


@pytest.mark.parametrize("operation", ["copied", "relu", "norms", "unit", "after_one"])
def test_numpy_and_torch_agree(operation):
    ours = getattr(arrays_on(CPU), operation)(VALUES.copy())
    theirs = getattr(arrays_on(CUDA), operation)(torch.from_numpy(VALUES.copy()))
    np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-6)


def test_values_by_hand():
    arrays = arrays_on(CPU)
    np.testing.assert_allclose(arrays.relu(VALUES.copy())[0], [3.0, 0.0])
    np.testing.assert_allclose(arrays.norms(VALUES)[:2], [5.0, 0.0])
    np.testing.assert_allclose(arrays.unit(VALUES)[:2], [[0.6, -0.8], [0.0, 0.0]])


def test_only_relu_works_in_place():
    values = VALUES.copy()
    for operation in (arrays_on(CPU).norms, arrays_on(CPU).unit):
        operation(values)
    np.testing.assert_array_equal(values, VALUES)


def test_array_is_a_private_contiguous_copy():
    tensor = torch.arange(6.0).reshape(2, 3)
    copied = array_on(CPU, tensor.T)
    tensor.zero_()
    assert copied.flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(copied, [[0, 3], [1, 4], [2, 5]])
