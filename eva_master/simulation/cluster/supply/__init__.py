"""What a simulated cloud refuses, loses and takes back."""
